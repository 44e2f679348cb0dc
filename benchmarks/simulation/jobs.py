"""The queue, by numbers: jobs of one kind are one entry, so a hundred million cost no memory."""

import heapq
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random

from benchmarks.simulation.scenario import Scenario
from embed_pipeline.domain.fairness import SUSPECTS_AT_ONCE, Lane, suspects_first
from embed_pipeline.domain.lifecycle import GiveBack, Retry, after_expiry


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs with the same past."""

    count: int
    attempts: int = 0
    expiries: int = 0
    death: int | None = None
    """The first death that they were held in."""


@dataclass(slots=True, eq=False)
class Batch:
    """Jobs under lease."""

    groups: list[Group]
    deadline: float

    @property
    def count(self) -> int:
        """How many jobs."""
        return sum(group.count for group in self.groups)

    def parts(self, size: int) -> "list[Batch]":
        """The same jobs in batches of at most ``size``."""
        parts: list[Batch] = []
        rest = deque(self.groups)
        while rest:
            parts.append(Batch(take(rest, size), self.deadline))
        return parts

    def forget(self, part: "Batch") -> None:
        """Leave out jobs at the head that have ended."""
        rest = deque(self.groups)
        take(rest, part.count)
        self.groups = list(rest)

    @property
    def is_suspect(self) -> bool:
        """A job whose lease has expired before."""
        return any(group.expiries for group in self.groups)


def take(lane: deque[Group], limit: int) -> list[Group]:
    """Remove the first ``limit`` jobs."""
    taken: list[Group] = []
    while limit and lane:
        group = lane.popleft()
        part = min(limit, group.count)
        if part < group.count:
            lane.appendleft(replace(group, count=group.count - part))
        taken.append(replace(group, count=part))
        limit -= part
    return taken


@dataclass(slots=True)
class Death:
    """Jobs that a dead drain held, and when the last of them had ended."""

    at: float
    jobs: int = 0
    left: int = 0
    first: float = 0.0
    """When the first of them was recovered."""
    last: float = 0.0


@dataclass(slots=True)
class Jobs:
    """Where all jobs are; each is in exactly one place."""

    scenario: Scenario
    chance: Random
    ready: deque[Group] = field(default_factory=deque[Group])
    suspects: deque[Group] = field(default_factory=deque[Group])
    delayed: list[tuple[float, int, Group]] = field(default_factory=list[tuple[float, int, Group]])
    expiring: list[tuple[float, int, Group]] = field(default_factory=list[tuple[float, int, Group]])
    deaths: list[Death] = field(default_factory=list[Death])
    held: int = 0
    done: int = 0
    failed: int = 0
    turns: int = 0
    order: "count[int]" = field(default_factory=count)

    def __post_init__(self) -> None:
        self.ready.append(Group(self.scenario.jobs))

    @property
    def is_over(self) -> bool:
        """Every job has ended."""
        return self.done + self.failed >= self.scenario.jobs

    def total(self) -> int:
        """All jobs, wherever they are: this never changes."""
        waiting = [*self.ready, *self.suspects]
        later = [group for _, _, group in (*self.delayed, *self.expiring)]
        return sum(g.count for g in (*waiting, *later)) + self.held + self.done + self.failed

    def on_offer(self, limit: int, lane: Lane, *, now: float) -> int:
        """How many jobs a lease would give out now."""
        source, most = self._choose(lane, limit, now=now)
        found = 0
        for group in source:
            found += group.count
            if found >= most:
                return most
        return found

    def lease(self, limit: int, lane: Lane, *, now: float) -> Batch | None:
        """Give out jobs by the rules of ``domain.fairness``."""
        source, most = self._choose(lane, limit, now=now)
        groups = take(source, most)
        if not groups:
            return None
        self.turns += 1
        deadline = now + self.scenario.options.lease.total_seconds()
        batch = Batch([replace(g, attempts=g.attempts + 1) for g in groups], deadline)
        self.held += batch.count
        return batch

    def complete(self, groups: Iterable[Group], *, now: float) -> None:
        """The vectors are stored."""
        for group in groups:
            self.held -= group.count
            self.done += group.count
            self._note_end(group, now)

    def fail(self, batch: Batch, *, now: float) -> None:
        """The request was in vain: again later, or never."""
        for group in batch.groups:
            self.held -= group.count
            if group.attempts >= self.scenario.max_attempts:
                self._give_up(group, now)
                continue
            delay = self.scenario.retry.delay(group.attempts, self.chance.random())
            self._delay(group, now + delay.total_seconds())

    def release(self, batch: Batch) -> None:
        """Given back untried, with the attempt."""
        for group in batch.groups:
            self.held -= group.count
            self._enter(replace(group, attempts=group.attempts - 1), at_head=True)

    def die(self, batches: Iterable[Batch], *, now: float) -> None:
        """Nobody works on these any more, and nobody knows it before the leases expire."""
        death = Death(now)
        for batch in batches:
            for group in batch.groups:
                self.held -= group.count
                dead = group
                if group.death is None:
                    dead = replace(group, death=len(self.deaths))
                    death.jobs += group.count
                heapq.heappush(self.expiring, (batch.deadline, next(self.order), dead))
        death.left = death.jobs
        self.deaths.append(death)

    def expired(self, limit: int, *, now: float) -> int:
        """How many leases a recovery would take away now."""
        found = sum(group.count for until, _, group in self.expiring if until <= now)
        return min(limit, found)

    def recover(self, limit: int, *, now: float) -> int:
        """Take leases away that have expired; a job that came back is a suspect."""
        left = limit
        while left and self.expiring and self.expiring[0][0] <= now:
            until, _, group = heapq.heappop(self.expiring)
            taken = replace(group, count=min(left, group.count))
            if taken.count < group.count:
                rest = replace(group, count=group.count - taken.count)
                heapq.heappush(self.expiring, (until, next(self.order), rest))
            left -= taken.count
            decision = after_expiry(
                attempts=taken.attempts,
                max_attempts=self.scenario.max_attempts,
                expiries=taken.expiries + 1,
                policy=self.scenario.retry,
                roll=self.chance.random(),
            )
            back = replace(taken, expiries=taken.expiries + 1)
            if taken.death is not None and not self.deaths[taken.death].first:
                self.deaths[taken.death].first = now
            if isinstance(decision, Retry):
                self._delay(back, now + decision.delay.total_seconds())
            elif isinstance(decision, GiveBack):
                self._enter(replace(back, attempts=back.attempts - 1))
            else:
                self._give_up(back, now)
        return limit - left

    def _choose(self, lane: Lane, limit: int, *, now: float) -> tuple[deque[Group], int]:
        while self.delayed and self.delayed[0][0] <= now:
            self._enter(heapq.heappop(self.delayed)[2])
        is_only_suspect = lane is Lane.SUSPECT or (lane is Lane.ANY and not self.ready)
        if is_only_suspect or (self.suspects and suspects_first(self.turns, lane)):
            return self.suspects, self._at_once(limit)
        return self.ready, limit

    def _at_once(self, limit: int) -> int:
        """How many suspects at the head are leased together: a last attempt is made alone."""
        together = 0
        for group in self.suspects:
            if group.attempts + 1 >= self.scenario.max_attempts:
                return together or 1
            together += group.count
            if together >= min(limit, SUSPECTS_AT_ONCE):
                return min(limit, SUSPECTS_AT_ONCE)
        return together

    def _enter(self, group: Group, *, at_head: bool = False) -> None:
        lane = self.suspects if group.expiries else self.ready
        if at_head:
            lane.appendleft(group)
        else:
            lane.append(group)

    def _delay(self, group: Group, until: float) -> None:
        heapq.heappush(self.delayed, (until, next(self.order), group))

    def _give_up(self, group: Group, now: float) -> None:
        self.failed += group.count
        self._note_end(group, now)

    def _note_end(self, group: Group, now: float) -> None:
        if group.death is not None:
            death = self.deaths[group.death]
            death.left -= group.count
            death.last = now
