"""A drain, as ``embed_pipeline.worker`` works: leases ahead, several requests, heartbeat, recovery.

Sizes, lanes, limits and retries are those of the package itself; what is imitated here is when
what happens, and what it costs.
"""

from collections import deque
from collections.abc import Generator
from typing import Any, Final

from benchmarks.simulation.database import CHANGE, QUESTION
from benchmarks.simulation.jobs import Batch
from benchmarks.simulation.kernel import Event, Process, Steps
from benchmarks.simulation.life import Life, World
from embed_pipeline.domain.embedding import RequestLimits
from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.rate_window import hold, take
from embed_pipeline.worker.ahead import LONG_LEASE
from embed_pipeline.worker.chores import JOBS_PER_RECOVERY
from embed_pipeline.worker.intake import LEASES_BETWEEN_SUSPECTS
from embed_pipeline.worker.lease_keeper import LEASES_PER_BEAT
from embed_pipeline.worker.settling import ROWS_PER_WRITE

SECOND_MS: Final = 1_000


class Drain(Life):
    """One drain, and the one that stands in for it when it is gone."""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self._options = world.scenario.options
        self._costs = world.database.costs
        limits = RequestLimits()
        texts = self._options.jobs_per_request or limits.inputs
        by_tokens = limits.tokens // max(1, world.scenario.provider.tokens_per_text)
        self._texts_per_request = max(1, min(limits.inputs, texts, by_tokens))

    def start(self) -> None:
        """Begin with nothing, as a new process does."""
        self._processes = set()
        self._holdings: dict[Batch, None] = {}
        self._ready: deque[Batch] = deque()
        self._requests = self._leases = 0
        self._is_leasing = self._is_preparing = False
        self._holds_suspect = self._is_empty = self._has_news = False
        self._resume_at = self._look_again_at = self._recovery_at = self._lease_took = 0.0
        self._wake, self._is_sent = Event(self._clock), Event(self._clock)
        self._start(self._work())
        self._start(self._beat())
        if rate := self._world.scenario.deaths_per_hour:
            life = self._world.chance.expovariate(rate / 3600)
            self._clock.at(self._clock.now + life, self._die_if_still, self._processes)

    @property
    def held(self) -> int:
        """How many jobs it has leased and not settled."""
        return sum(batch.count for batch in self._holdings)

    def die(self) -> None:
        """Vanish: what was held is found by its expiry."""
        self._jobs.die(self._holdings, now=self._clock.now)
        self._end()

    def _die_if_still(self, life: set[Process]) -> None:
        # A drain that has given up in the meantime has another life.
        if life is self._processes:
            self.die()

    def _give_up(self) -> None:
        self._tally.drains_given_up += 1
        for batch in self._holdings:
            self._jobs.release(batch)
        self._end()

    def _end(self) -> None:
        self._kill()
        self._clock.at(self._clock.now + self._world.scenario.restart, self.start)

    def _work(self) -> Steps:
        yield from self._spend(self._costs.start, 0, trips=CHANGE)
        yield from self._recover(until_none_is_left=True)
        while True:
            if self._clock.now >= self._recovery_at:
                yield from self._recover(until_none_is_left=False)
            yield from self._send()
            self._lease_ahead()
            yield self._something()

    def _something(self) -> Event:
        """What wakes the drain: a task that has ended, or a time that has come."""
        self._wake = Event(self._clock)
        if self._has_news:
            self._has_news = False
            self._wake.fire()
            return self._wake
        now = self._clock.now
        times = (self._recovery_at, self._resume_at, self._look_again_at)
        self._clock.at(min((time for time in times if time > now), default=now), self._wake.fire)
        return self._wake

    def _news(self) -> None:
        if self._wake.is_over:
            self._has_news = True
        self._wake.fire()

    def _recover(self, *, until_none_is_left: bool) -> Steps:
        self._recovery_at = self._clock.now + self._options.recovery_interval.total_seconds()
        while True:
            now = self._clock.now
            expired = self._jobs.expired(JOBS_PER_RECOVERY, now=now)
            yield from self._spend(self._costs.lease, expired, trips=CHANGE)
            recovered = self._jobs.recover(expired, now=now)
            if not until_none_is_left or recovered < JOBS_PER_RECOVERY:
                return

    def _send(self) -> Steps:
        while self._ready and self._requests < self._options.requests_at_once:
            batch = self._ready[0]
            yield from self._question(batch.count)
            if wait := (yield from self._ask_limit(batch.count)):
                yield from self._pause(wait)
                return
            self._ready.popleft()
            self._requests += 1
            self._start(self._process(batch))
        if not self._ready:
            self._is_sent.fire()

    def _ask_limit(self, texts: int) -> Steps:
        """Return the seconds to wait; zero when it was granted."""
        yield from self._transaction(lambda: self._database.ask_limit(self.client))
        provider = self._world.scenario.provider
        window, grant = take(
            self._database.window,
            provider.limits,
            now_ms=self._now_ms,
            tokens=texts * provider.tokens_per_text,
        )
        if texts:
            self._database.window = window
        return grant.wait.total_seconds()

    def _pause(self, seconds: float) -> Steps:
        self._resume_at = self._clock.now + seconds
        while self._ready:
            yield from self._release(self._ready.popleft())
        self._is_sent.fire()

    def _release(self, batch: Batch) -> Steps:
        yield from self._spend(self._costs.lease, batch.count, trips=CHANGE)
        self._holdings.pop(batch)
        self._tally.released += batch.count
        self._jobs.release(batch)

    @property
    def _now_ms(self) -> int:
        return int(self._clock.now * SECOND_MS)

    @property
    def _is_suspects_turn(self) -> bool:
        return self._leases % LEASES_BETWEEN_SUSPECTS == LEASES_BETWEEN_SUSPECTS - 1

    def _lease_ahead(self) -> None:
        now = self._clock.now
        may_lease = now >= self._look_again_at and (
            not self._holdings or not (self._holds_suspect or self._is_suspects_turn)
        )
        # What is prepared will take one of the places of the requests.
        has_place = self._requests + self._is_preparing <= self._options.requests_at_once
        is_crowded = self._is_preparing and self._lease_took > LONG_LEASE
        is_busy = self._is_leasing or self._ready or is_crowded or not has_place
        if not is_busy and now >= self._resume_at and may_lease:
            self._is_leasing = True
            self._start(self._lease())

    def _lease(self) -> Steps:
        if self._resume_at:
            wait = yield from self._ask_limit(0)
            self._resume_at = self._clock.now + wait if wait else 0.0
        batch = None if self._resume_at else (yield from self._take())
        if batch is None:
            self._is_leasing = False
            self._news()
            return
        while self._is_preparing or self._ready:
            self._is_sent = Event(self._clock)
            yield self._is_sent
        self._is_leasing = False
        if self._clock.now < self._resume_at:
            yield from self._release(batch)
            return
        self._is_preparing = True
        self._news()
        yield from self._prepare(batch)
        self._holdings.pop(batch)
        parts = batch.parts(self._texts_per_request)
        self._holdings.update(dict.fromkeys(parts))
        self._ready.extend(parts)
        self._is_preparing = False
        self._news()

    def _take(self) -> Generator[Any, Any, Batch | None]:
        lane = Lane.ANY
        if self._holdings:
            lane = Lane.HEALTHY
        elif self._is_suspects_turn and not self._is_empty:
            lane = Lane.SUSPECT
        limit = self._options.most_per_lease(self._texts_per_request)

        def on_offer() -> int:
            return self._jobs.on_offer(limit, lane, now=self._clock.now)

        asked_at = self._clock.now
        yield from self._transaction(lambda: self._database.lease(self.client, on_offer))
        self._lease_took = self._clock.now - asked_at
        batch = self._jobs.lease(limit, lane, now=self._clock.now)
        self._leases += 1
        self._tally.leases += 1
        if batch is None:
            self._tally.empty_leases += 1
            self._is_empty = self._is_empty or lane is Lane.ANY
            if lane is not Lane.SUSPECT:
                self._look_again_at = self._clock.now + self._options.idle_pause.total_seconds()
            return None
        self._is_empty, self._holds_suspect = False, batch.is_suspect
        self._holdings[batch] = None
        return batch

    def _prepare(self, batch: Batch) -> Steps:
        """Read the entities, render them, look for known vectors."""
        jobs, costs = batch.count, self._costs
        for cost in (costs.load, costs.find):
            yield from self._spend(cost, jobs, trips=QUESTION)
        yield from self.client.compute(costs.render.seconds(jobs)[0])

    def _question(self, jobs: int) -> Steps:
        yield from self._spend(self._costs.check, jobs, trips=QUESTION)

    def _process(self, batch: Batch) -> Steps:
        provider, chance = self._world.scenario.provider, self._world.chance
        seconds = provider.latency + batch.count * provider.latency_per_text
        if seconds and provider.spread:
            seconds *= chance.lognormvariate(0, provider.spread)
        yield seconds
        self._tally.requests += 1
        self._tally.texts += batch.count
        self._tally.request_seconds += seconds
        roll = chance.random()
        if roll < provider.refused:
            yield from self._obey(batch)
        elif roll < provider.refused + provider.failing:
            yield from self._fail(batch)
        else:
            yield from self.client.compute(self._costs.judge.seconds(batch.count)[0])
            yield from self._complete(batch)
        self._requests -= 1
        self._look_again_at = 0.0
        self._news()

    def _obey(self, batch: Batch) -> Steps:
        """The provider has said 429: nobody sends anything for a while."""
        pause = self._world.scenario.provider.pause
        self._tally.refused += 1
        self._resume_at = self._clock.now + pause
        yield from self._transaction(lambda: self._database.ask_limit(self.client))
        self._database.window = hold(
            self._database.window, pause_ms=int(pause * SECOND_MS), now_ms=self._now_ms
        )
        yield from self._release(batch)

    def _fail(self, batch: Batch) -> Steps:
        yield from self._spend(self._costs.lease, batch.count, trips=CHANGE)
        self._holdings.pop(batch)
        self._jobs.fail(batch, now=self._clock.now)

    def _complete(self, batch: Batch) -> Steps:
        for part in batch.parts(ROWS_PER_WRITE):
            yield from self._spend(self._costs.complete, part.count, trips=CHANGE + 1)
            yield from self._database.enter_index(part.count)
            self._jobs.complete(part.groups, now=self._clock.now)
            batch.forget(part)
        self._holdings.pop(batch)

    def _beat(self) -> Steps:
        while True:
            yield self._options.heartbeat.total_seconds()
            batches = list(self._holdings)
            jobs, asked = sum(batch.count for batch in batches), self._clock.now
            for start in range(0, jobs, LEASES_PER_BEAT):
                part = min(LEASES_PER_BEAT, jobs - start)
                yield from self._spend(self._costs.heartbeat, part, trips=QUESTION)
            for batch in batches:
                batch.deadline = asked + self._options.lease.total_seconds()
