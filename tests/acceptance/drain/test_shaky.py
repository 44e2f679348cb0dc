"""What keeps a lease alive, what loses it, and what a drain does when the database is shaky."""

import asyncio
import threading
import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.errors import CredentialsError
from embed_pipeline.domain.job import JobFilter, Lease
from embed_pipeline.domain.results import Beat
from embed_pipeline.store.job_store import Neo4jJobStore
from embed_pipeline.worker import outage
from embed_pipeline.worker.report import Ending
from tests.support.drain_harness import DrainUnderTest, until
from tests.support.openai_server import failure

SECOND = timedelta(seconds=1)


class ShakyStore:
    """The real store, with operations that fail when told to."""

    def __init__(self, store: Any, *failing: str) -> None:
        self._store = store
        self._failing = failing
        self.calls: list[str] = []

    def mend(self) -> None:
        self._failing = ()

    def __getattr__(self, name: str) -> Any:
        operation = getattr(self._store, name)

        async def call(*arguments: Any, **options: Any) -> Any:
            self.calls.append(name)
            if name in self._failing:
                raise ConnectionError("the database does not answer")
            return await operation(*arguments, **options)

        return call


class Beats:
    """What the heartbeat talks to: notes for whom it beats and from which thread."""

    def __init__(self, *, fail: bool = False) -> None:
        self.fail = fail
        self.uids: set[str] = set()
        self.threads: set[int] = set()

    async def heartbeat(self, leases: Sequence[Lease], *, duration: timedelta) -> Beat:
        self.threads.add(threading.get_ident())
        self.uids |= {lease.entity_uid for lease in leases}
        if self.fail:
            raise ConnectionError("the database does not answer")
        return Beat(held=tuple(leases))


async def test_m34_every_leased_job_is_beaten_for_off_the_worker_thread(
    queue: DrainUnderTest,
) -> None:
    await queue.given(10)
    queue.provider.gate.clear()
    beats = Beats()

    async with queue.drain(
        heartbeat_store=beats,
        heartbeat=timedelta(milliseconds=50),
        jobs_per_request=2,
        requests_at_once=1,
    ) as drain:
        running = asyncio.create_task(drain.run())
        # One request of two jobs is in work; the others wait for their turn.
        await until(lambda: drain.report.leased >= 4)
        held = await queue.run("MATCH (j:EmbedProcessing) RETURN j.entity_uid AS uid")
        await until(lambda: beats.uids >= {row["uid"] for row in held})
        queue.provider.gate.set()
        await running

    assert len(held) >= 4
    assert threading.get_ident() not in beats.threads


async def test_m40_m47_three_failed_beats_stop_new_work_and_give_back_the_rest(
    queue: DrainUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.given(10)
    queue.provider.gate.clear()
    beat, is_failing = Neo4jJobStore.heartbeat, False

    async def shaky(store: Neo4jJobStore, leases: Sequence[Lease], *, duration: timedelta) -> Beat:
        if is_failing:
            raise ConnectionError("the database does not answer")
        return await beat(store, leases, duration=duration)

    async def expiries() -> dict[str, int]:
        rows = await queue.run("MATCH (j:EmbedProcessing) RETURN j.id AS id, j.lock_until AS at")
        return {row["id"]: row["at"] for row in rows}

    monkeypatch.setattr(Neo4jJobStore, "heartbeat", shaky)
    async with queue.drain(
        heartbeat=timedelta(milliseconds=50), jobs_per_request=1, requests_at_once=1
    ) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: queue.provider.requests)
        leased = await expiries()
        seen = drain.report.heartbeats
        await until(lambda: drain.report.heartbeats >= seen + 2)
        is_failing = True
        await until(lambda: drain.report.heartbeats_failed >= 1)
        extended = await expiries()
        await until(lambda: drain.report.heartbeats_failed >= 3)
        # What is in flight; the rest may have been given back by now.
        after = await expiries()
        queue.provider.gate.set()
        report = await running

    # Another lease may have been under way at each look.
    assert all(extended[job] > at for job, at in leased.items())
    kept = after.keys() & extended.keys()
    assert kept
    assert all(after[job] == extended[job] for job in kept), "a failed beat leaves the old expiry"
    assert report.ending is Ending.HEARTBEAT
    assert len(queue.provider.requests) == 1
    assert await queue.counted() == {"completed": 1, "pending": 9}


async def test_m58_after_expiry_the_worker_writes_nothing_about_its_job(
    queue: DrainUnderTest,
) -> None:
    await queue.given(3)
    queue.provider.latency = 1.5
    store = ShakyStore(queue.jobs)

    async with queue.drain(
        store=store, heartbeat_store=Beats(fail=True), lease=SECOND, heartbeat=SECOND
    ) as drain:
        report = await drain.run()

    assert report.lost == 3
    assert report.completed == 0
    assert "complete" not in store.calls
    assert "fail" not in store.calls
    assert await queue.counted() == {"processing": 3}
    assert await queue.vector("e0") is None


async def test_m60_a_failing_recovery_does_not_end_the_drain(queue: DrainUnderTest) -> None:
    await queue.given(3)

    async with queue.drain(store=ShakyStore(queue.jobs, "recover_expired")) as drain:
        report = await drain.run()

    assert (report.recovery_errors, report.completed) == (1, 3)


async def test_m59_a_failing_look_for_cancellations_does_not_end_the_drain(
    queue: DrainUnderTest,
) -> None:
    await queue.given(3)
    queue.provider.gate.clear()

    async with queue.drain(store=ShakyStore(queue.jobs, "check")) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: queue.provider.requests)
        await queue.admin.cancel_job((await queue.job("e1")).id, by="operator")
        queue.provider.gate.set()
        report = await running

    assert await queue.counted() == {"completed": 2, "cancelled": 1}
    assert await queue.vector("e1") is None
    assert (report.completed, report.fenced) == (2, 1)


@pytest.mark.parametrize(
    ("step", "is_sent"),
    [("load", False), ("find_vectors", False), ("complete", True)],
    ids=["before the text is rendered", "before the provider is called", "before the write"],
)
async def test_m44_a_cancellation_is_noticed_at_the_next_point(
    queue: DrainUnderTest, step: str, is_sent: bool
) -> None:
    await queue.given(3)
    victim = (await queue.job("e1")).id

    class Cancelling(ShakyStore):
        """Lets an operator cancel a job just before a step of the worker."""

        def __getattr__(self, name: str) -> Any:
            operation = getattr(self._store, name)

            async def call(*arguments: Any, **options: Any) -> Any:
                if name == step and name not in self.calls:
                    self.calls.append(name)
                    await queue.admin.cancel_job(victim, by="operator")
                return await operation(*arguments, **options)

            return call

    async with queue.drain(store=Cancelling(queue.jobs)) as drain:
        await drain.run()

    sent = [text for request in queue.provider.requests for text in request["input"]]
    assert any("e1" in text for text in sent) is is_sent
    assert await queue.counted() == {"completed": 2, "cancelled": 1}
    assert await queue.vector("e1") is None


async def test_m37_recovery_runs_at_most_once_per_interval_in_a_long_drain(
    queue: DrainUnderTest,
) -> None:
    await queue.given(40)
    store = ShakyStore(queue.jobs)

    async with queue.drain(
        store=store, recovery_interval=timedelta(hours=1), jobs_per_lease=4, jobs_per_request=1
    ) as drain:
        await drain.run()

    assert store.calls.count("recover_expired") == 1


async def test_m37_leases_that_expire_during_a_drain_are_recovered_in_it(
    queue: DrainUnderTest,
) -> None:
    await queue.given(2)
    await queue.lease("dead/run", limit=1, duration=SECOND)

    stop = asyncio.Event()

    async with queue.drain(
        until_empty=False, stop=stop, recovery_interval=timedelta(milliseconds=100)
    ) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: drain.report.completed == 2 or running.done())
        stop.set()
        report = await running

    assert report.recovered == 1
    assert await queue.counted() == {"completed": 2}


async def test_r12_a_vector_that_the_database_refuses_fails_its_job_alone(
    queue: DrainUnderTest,
) -> None:
    await queue.given(20)

    class Refusing(ShakyStore):
        def __getattr__(self, name: str) -> Any:
            operation = getattr(self._store, name)
            if name != "complete":
                return operation

            async def complete(rows: Any) -> Any:
                if any(row.lease.entity_uid == "e7" for row in rows):
                    raise ValueError("the store is damaged here")
                return await operation(rows)

            return complete

    async with queue.drain(store=Refusing(queue.jobs)) as drain:
        await drain.run()

    assert await queue.counted() == {"completed": 19, "failed": 1}
    job = await queue.job("e7")
    assert job.error_category == "CRITICAL"


@pytest.mark.parametrize("operation", ["lease", "load", "find_vectors"])
async def test_a_database_that_fails_ends_the_drain_with_nothing_held(
    queue: DrainUnderTest, operation: str
) -> None:
    await queue.given(5)

    async with queue.drain(store=ShakyStore(queue.jobs, operation)) as drain:
        with pytest.raises(ConnectionError):
            await drain.run()

    assert await queue.counted() == {"pending": 5}
    assert {job.attempts for job in await queue.admin.find_jobs(JobFilter())} == {0}


async def test_a_drain_that_waits_for_jobs_waits_for_a_paused_queue(
    queue: DrainUnderTest,
) -> None:
    await queue.given(1)
    await queue.switch.pause(by="alice")

    store, stop = ShakyStore(queue.jobs), asyncio.Event()

    async with queue.drain(store=store, until_empty=False, stop=stop) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: store.calls.count("lease") >= 2)
        await queue.switch.resume()
        await until(lambda: drain.report.completed == 1)
        stop.set()
        await running

    assert await queue.counted() == {"completed": 1}


@pytest.mark.parametrize("operation", ["lease", "load", "find_vectors", "complete", "release"])
async def test_a_watching_drain_waits_for_the_database_and_goes_on(
    queue: DrainUnderTest, operation: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE", 0.01)
    await queue.given(5)
    # Something has to be given back: the second look fails, with jobs in hand.
    store = ShakyStore(queue.jobs, operation, "load" if operation == "release" else operation)
    stop, said = asyncio.Event(), list[str]()

    def say(line: str) -> None:
        said.append(line)
        if len(said) == 3:
            store.mend()

    async with queue.drain(store=store, until_empty=False, stop=stop, say=say) as drain:
        running = asyncio.create_task(drain.run())
        if operation == "release":
            await until(lambda: store.calls.count("release") >= 3)
            store.mend()
        await until(lambda: drain.report.completed == 5 or running.done())
        stop.set()
        report = await running

    assert report.ending is Ending.STOPPED
    assert await queue.counted() == {"completed": 5}
    assert said[0] == "Neo4j does not answer (ConnectionError); waiting until it does"
    assert "Neo4j answers again" in said[-1]
    assert report.leased == report.completed + report.released
    assert (report.fenced, report.lost, await queue.attempts()) == (0, 0, {1: 5})


async def test_what_waiting_cannot_heal_ends_a_watching_drain(queue: DrainUnderTest) -> None:
    await queue.given(1)

    class Refused(ShakyStore):
        def __getattr__(self, name: str) -> Any:
            if name == "lease":
                raise CredentialsError("Neo4j refuses user or password")
            return super().__getattr__(name)

    async with queue.drain(store=Refused(queue.jobs), until_empty=False) as drain:
        with pytest.raises(CredentialsError):
            await drain.run()


async def test_a_watching_drain_outlives_heartbeats_that_fail(
    queue: DrainUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outage, "FIRST_PAUSE", 0.01)
    await queue.given(3)
    queue.provider.gate.clear()
    beats, stop = Beats(fail=True), asyncio.Event()

    def say(_: str) -> None:
        beats.fail = False
        queue.provider.gate.set()

    async with queue.drain(
        heartbeat_store=beats,
        heartbeat=timedelta(milliseconds=20),
        grace=timedelta(milliseconds=10),
        until_empty=False,
        stop=stop,
        say=say,
    ) as drain:
        running = asyncio.create_task(drain.run())
        await until(lambda: drain.report.completed == 3 or running.done())
        stop.set()
        report = await running

    assert report.heartbeats_failed >= 3
    assert (report.ending, report.released) == (Ending.STOPPED, 3)
    assert await queue.counted() == {"completed": 3}


async def test_a_drain_whose_time_is_up_before_it_has_given_back_says_what_holds_it(
    queue: DrainUnderTest,
) -> None:
    late = 0
    await queue.given(1)
    queue.provider.answer_with = lambda _: failure(
        429, "slow down", "rate_limit_exceeded", **{"retry-after": "600"}
    )

    class Slow(ShakyStore):
        async def release(self, leases: Sequence[Lease]) -> int:
            nonlocal late
            late = 300
            return await queue.jobs.release(leases)

    report = await queue.drained(
        store=Slow(queue.jobs), clock=lambda: time.monotonic() + late, max_time=300 * SECOND
    )

    found = await queue.queue.limiter(queue.limits).peek()
    assert report.ending is Ending.BUDGET
    assert report.reason == f"the rate limit lasts longer than the time left; {found.hold}"
