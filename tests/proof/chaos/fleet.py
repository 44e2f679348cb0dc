"""Drains that are replaced as fast as they die, each behind a line of its own."""

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Final

import psutil

from tests.proof.chaos.drain import Life, live
from tests.proof.chaos.history import Log
from tests.support.bolt_proxy import BoltProxy

PAUSE_AFTER_ERROR: Final = 2.0
CLEAN, KILLED = 0, -signal.SIGKILL


@dataclass
class Berth:
    """One place of the fleet, its line to the database, and who works there now."""

    name: str
    proxy: BoltProxy
    variables: dict[str, str]
    process: BaseProcess | None = None
    lives: int = 0
    born: float = 0.0
    is_reserved: bool = False
    """Suspended, or about to be hurt in a way that takes time."""

    @property
    def who(self) -> str:
        """The name of the present life, in the history and of its owner."""
        return f"{self.name}-{self.lives}"

    @property
    def is_alive(self) -> bool:
        return self.process is not None and self.process.is_alive()

    def send(self, number: signal.Signals) -> None:
        if self.process is not None and self.process.pid is not None:
            with suppress(ProcessLookupError):
                os.kill(self.process.pid, number)


@dataclass
class Fleet:
    """All drains; ``is_closing`` once nobody is to be replaced any more."""

    folder: Path
    log: Log
    mutant: str | None
    berths: list[Berth] = field(default_factory=list)
    exits: dict[str, int] = field(default_factory=lambda: {"clean": 0, "killed": 0, "error": 0})
    is_closing: bool = False

    def __post_init__(self) -> None:
        # Forks from a process that has imported everything: a drain lives after 50 ms, not 2 s.
        self._fork = multiprocessing.get_context("forkserver")
        self._fork.set_forkserver_preload(["tests.proof.chaos.drain"])

    def choose(self, where: float) -> Berth | None:
        """One of the drains at work; nobody if none is.

        One that never had a job can be hurt too, but that proves little.
        """
        free = (berth for berth in self.berths if berth.is_alive and not berth.is_reserved)
        working = [berth for berth in free if '"what": "lease"' in self._history(berth.who)]
        return working[int(where * len(working))] if working else None

    async def keep_sailing(self) -> None:
        """Replace whoever has died."""
        while True:
            for berth in self.berths:
                if not berth.is_alive:
                    self._replace(berth)
            await asyncio.sleep(0.05)

    def is_stopped(self, berth: Berth) -> bool:
        """Say whether a signal has suspended the process."""
        if berth.process is None or berth.process.pid is None:
            return False
        try:
            return psutil.Process(berth.process.pid).status() == psutil.STATUS_STOPPED
        except psutil.Error:
            return False

    def fell_into_trap(self, who: str) -> bool:
        """Say whether the last thing this drain wrote is that it dies now."""
        return self._history(who).endswith('"what": "trap", "kind": "kill"}\n')

    def _history(self, who: str) -> str:
        path = self.folder / f"{who}.jsonl"
        return path.read_text() if path.exists() else ""

    async def scuttle(self) -> None:
        """End all drains in an orderly way, and those that do not, in the other."""
        self.is_closing = True
        for berth in self.berths:
            berth.send(signal.SIGCONT)
            berth.send(signal.SIGTERM)
        deadline = time.monotonic() + 30
        while any(berth.is_alive for berth in self.berths):
            if time.monotonic() > deadline:
                for berth in self.berths:
                    berth.send(signal.SIGKILL)
            await asyncio.sleep(0.05)

    def _replace(self, berth: Berth) -> None:
        now = time.monotonic()
        if berth.process is not None:
            code = berth.process.exitcode
            kind = {CLEAN: "clean", KILLED: "killed"}.get(code or 0, "error")
            self.exits[kind] += 1
            self.log("exit", drain=berth.who, kind=kind, code=code)
            berth.process = None
            # Else all of them would start and fail in a circle while the server is down.
            berth.born = now + (PAUSE_AFTER_ERROR if kind == "error" else 0)
        if self.is_closing or now < berth.born:
            return
        berth.lives += 1
        berth.born, berth.is_reserved = now, False
        life = Life(
            who=berth.who,
            folder=self.folder,
            variables=berth.variables,
            mutant=self.mutant,
        )
        berth.process = self._fork.Process(target=live, args=(life,), daemon=True)
        berth.process.start()


@asynccontextmanager
async def launched(
    fleet: Fleet, *, size: int, server_uri: str, variables: dict[str, str]
) -> AsyncGenerator[Fleet]:
    """Open a line per berth and keep drains on all of them until the block ends."""
    async with AsyncExitStack() as stack:
        for number in range(size):
            proxy = await stack.enter_async_context(BoltProxy(server_uri))
            own = {**variables, "NEO4J_URI": proxy.uri}
            fleet.berths.append(Berth(name=f"drain{number}", proxy=proxy, variables=own))
        sailing = asyncio.create_task(fleet.keep_sailing())
        try:
            yield fleet
        finally:
            await fleet.scuttle()
            sailing.cancel()
            await asyncio.gather(sailing, return_exceptions=True)
