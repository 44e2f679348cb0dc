"""Does to the queue what the plan says, and does not give up before it has happened."""

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from embed_pipeline.devserver import temporary
from embed_pipeline.devserver.neo4j_server import Neo4jServer
from embed_pipeline.domain.breaker import BreakerStatus
from tests.proof.chaos.drain import KILL_AT_WRITE, STOP_AT_WRITE
from tests.proof.chaos.fleet import Berth, Fleet
from tests.proof.chaos.history import Log
from tests.proof.chaos.operators import ERRORS, Operators
from tests.proof.chaos.plan import LEASE, Fault, Step
from tests.proof.chaos.provider import Provider
from tests.support.bolt_proxy import CALM, BoltProxy, Weather

POLL: Final = 0.05
PATIENCE: Final = 10.0
"""Seconds in which a drain opens the breaker, if it lives so long."""
LONGEST_GAP: Final = 5.0
LONG_SILENCE: Final = 30.0
SLOW: Final = Weather(latency=0.05, bytes_per_second=16_000)


@dataclass
class Injector:
    """The bad luck of one run."""

    fleet: Fleet
    office: BoltProxy
    operators: Operators
    provider: Provider
    server: Neo4jServer
    log: Log
    planned: int
    jobs_between: int
    done: Counter[Fault] = field(default_factory=Counter)
    _under_way: set[asyncio.Task[None]] = field(default_factory=set)

    @property
    def progress(self) -> float:
        """How much of the plan has happened, from 0 to 1."""
        return self.done.total() / self.planned

    async def run(self, steps: Iterable[Step]) -> None:
        """Let everything happen, and return when it has."""
        for step in steps:
            # Else everything planned for a time without drains would happen at once after it.
            await self._victim(step)
            happening = asyncio.create_task(self._do(step))
            self._under_way.add(happening)
            if step.fault is Fault.SERVER_KILL:
                await happening
            await asyncio.gather(asyncio.sleep(step.gap), self._some_work())
        await asyncio.gather(*self._under_way)
        await _until(lambda: not any(proxy.uncut for proxy in self._lines))

    async def _some_work(self) -> None:
        """Let jobs be done between two faults, also where the machine is slow."""
        enough = self.provider.embedded + self.jobs_between
        with suppress(TimeoutError):
            async with asyncio.timeout(LONGEST_GAP):
                await _until(lambda: self.provider.embedded >= enough)

    @property
    def _lines(self) -> list[BoltProxy]:
        return [*(berth.proxy for berth in self.fleet.berths), self.office]

    async def _do(self, step: Step) -> None:
        match step.fault:
            case Fault.KILL:
                (await self._victim(step)).send(signal.SIGKILL)
            case Fault.TERMINATE:
                (await self._victim(step)).send(signal.SIGTERM)
            case Fault.KILL_AT_WRITE:
                await self._kill_at_write(step)
            case Fault.PAUSE:
                berth = await self._victim(step)
                berth.send(signal.SIGSTOP)
                await self._sleep_beyond_the_lease(berth, step)
            case Fault.PAUSE_AT_WRITE:
                await self._sleep_beyond_the_lease(await self._stop_at_write(step), step)
            case Fault.SERVER_KILL:
                await self._kill_server(step)
            case Fault.CUT:
                line = self._lines[int(step.where * len(self._lines))]
                line.cut_next_commits(1, step.cut)
            case Fault.SLOW:
                await self._weather(step, SLOW, seconds=3 + 5 * step.long)
            case Fault.SILENCE:
                beyond = LEASE.total_seconds() + 5 * step.long
                seconds = LONG_SILENCE if step.long > 0.85 else beyond
                await self._weather(step, Weather(is_silent=True), seconds=seconds)
            case _:
                await self._operate(step)
        self.done[step.fault] += 1
        self.log("fault", fault=step.fault.name)

    async def _operate(self, step: Step) -> None:
        match step.fault:
            case Fault.CANCEL:
                await self.operators.cancel()
            case Fault.RETRY:
                await self.operators.retry(also_killers=step.long > 0.75)
            case Fault.SWITCH_OFF:
                await self.operators.switch_off_and_on(2 * step.long)
            case Fault.PURGE:
                await self.operators.purge()
            case Fault.QUOTA:
                await self._empty_the_account()
            case Fault.OUTAGE:
                await self._take_the_provider_down(3 + 9 * step.long)
            case Fault.FOREIGN:
                await self.operators.write_as_others_do(step.where)
            case Fault.HAND_RECOVERY:
                await self.operators.recover_by_hand()
            case Fault.HAND_RESET:
                await self.operators.reset_by_hand()
            case _:
                raise AssertionError(step.fault)

    async def _victim(self, step: Step) -> Berth:
        while True:
            if berth := self.fleet.choose(step.where):
                return berth
            await asyncio.sleep(POLL)

    async def _kill_at_write(self, step: Step) -> None:
        while not await self._dies_at_write(await self._victim(step)):
            pass

    async def _dies_at_write(self, berth: Berth) -> bool:
        berth.is_reserved, who = True, berth.who
        berth.send(KILL_AT_WRITE)
        await _until(lambda: berth.who != who or not berth.is_alive)
        return self.fleet.fell_into_trap(who)

    async def _stop_at_write(self, step: Step) -> Berth:
        while not await self._stops_at_write(berth := await self._victim(step)):
            pass
        return berth

    async def _stops_at_write(self, berth: Berth) -> bool:
        berth.is_reserved, who = True, berth.who
        berth.send(STOP_AT_WRITE)
        await _until(lambda: berth.who != who or self.fleet.is_stopped(berth))
        return berth.who == who

    async def _sleep_beyond_the_lease(self, berth: Berth, step: Step) -> None:
        berth.is_reserved = True
        await asyncio.sleep(LEASE.total_seconds() + 0.5 + 3 * step.long)
        berth.send(signal.SIGCONT)
        berth.is_reserved = False

    async def _weather(self, step: Step, weather: Weather, *, seconds: float) -> None:
        proxy = (await self._victim(step)).proxy
        proxy.change_weather(weather)
        await asyncio.sleep(seconds)
        proxy.change_weather(CALM)

    async def _kill_server(self, step: Step) -> None:
        pid = self.server.status().pid
        assert pid is not None
        self.log("server", state="down")
        os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(2 * step.long)
        await asyncio.to_thread(self.server.start)
        await asyncio.to_thread(self.server.wait_until_ready, temporary.PATIENCE)
        self.log("server", state="up")

    async def _take_the_provider_down(self, seconds: float) -> None:
        """Nobody tells the queue when it is over: it must find out by itself."""
        before = self.provider.faults["down"]
        self.provider.is_down = True
        await _until(lambda: self.provider.faults["down"] > before)
        await asyncio.sleep(seconds)
        self.provider.is_down = False

    async def _empty_the_account(self) -> None:
        before = self.provider.faults["quota"]
        self.provider.quotas += 1
        await _until(lambda: self.provider.faults["quota"] > before)
        for _ in range(int(PATIENCE / POLL)):
            try:
                state = await self.operators.queue.switch.state()
            except ERRORS:
                continue
            if state.breaker.status is not BreakerStatus.CLOSED:
                await self.operators.close_breaker()
                return
            await asyncio.sleep(POLL)


async def _until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await asyncio.sleep(POLL)
