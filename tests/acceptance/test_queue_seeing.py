"""Seeing, operating and limiting, one test per line of the specification."""

import asyncio
from dataclasses import replace
from datetime import timedelta

import pytest

from embed_pipeline.domain.errors import ErrorCategory, SchemaError
from embed_pipeline.domain.holds import LONGEST_HOLD, MAX_SAID
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.operations import wiring
from embed_pipeline.settings import load_settings
from embed_pipeline.store import schema
from embed_pipeline.store.queue import open_queue
from tests.support.queue_harness import DIMENSIONS, LEASE, MODEL, SHAPE, Neo4jUnderTest

MINUTE = timedelta(minutes=1)


async def test_m9_no_window_holds_more_than_the_limit_across_all_workers(
    queue: Neo4jUnderTest,
) -> None:
    limits = RateLimits(requests=7, interval=timedelta(seconds=10))
    limiters = [queue.queue.limiter(limits) for _ in range(6)]
    granted = []

    for _ in range(60):
        grants = await asyncio.gather(*(limiter.acquire() for limiter in limiters))
        granted += [queue.clock.now for grant in grants if grant.is_granted]
        queue.clock.advance(timedelta(milliseconds=733))

    windows = [
        sum(start <= moment < start + limits.interval for moment in granted) for start in granted
    ]
    assert max(windows) <= 7
    # 44 s are four windows; a slice of each may be lost.
    assert len(granted) >= 4 * 7


async def test_m9_work_resumes_by_itself_after_the_reported_wait(queue: Neo4jUnderTest) -> None:
    limiter = queue.queue.limiter(RateLimits(requests=1))
    await limiter.acquire()

    refused = await limiter.acquire()
    queue.clock.advance(refused.wait - timedelta(milliseconds=1))
    early = await limiter.acquire()
    queue.clock.advance(timedelta(milliseconds=1))
    late = await limiter.acquire()

    assert MINUTE <= refused.wait <= MINUTE * 1.05
    assert (early.is_granted, late.is_granted) == (False, True)


async def test_m9_a_pause_asked_for_by_the_provider_holds_for_everybody(
    queue: Neo4jUnderTest,
) -> None:
    one, other = (queue.queue.limiter(RateLimits()) for _ in range(2))

    await one.hold(timedelta(seconds=30), owner="run-1", said="slow down")
    await one.hold(timedelta(seconds=5), owner="run-2", said="slower")
    refused = await other.acquire()
    queue.clock.advance(timedelta(seconds=30))

    assert refused.wait == timedelta(seconds=30)
    assert (await other.acquire()).is_granted


async def test_a_pause_that_an_older_version_left_for_31_years_is_cut(
    queue: Neo4jUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    limiter = queue.queue.limiter(RateLimits())
    now = int(queue.clock.now.timestamp() * 1_000)
    await queue.run(
        "CREATE (:EmbedLimiter {name: 'default', not_before: $until, held_at: $at})",
        until=now + 1_000_000_000_000,
        at=now,
    )

    told = await limiter.peek()
    queue.clock.advance(LONGEST_HOLD)

    assert told.wait == LONGEST_HOLD
    assert "held a pause of 11574 d 1 h, cut to 15 min" in caplog.text
    assert (await limiter.acquire()).is_granted


async def test_a_limiter_that_is_only_read_is_not_written(queue: Neo4jUnderTest) -> None:
    state = await queue.queue.limiter(RateLimits()).read()

    assert (state.requests, state.tokens, state.wait, state.hold) == (0, 0, timedelta(0), None)
    assert await queue.run("MATCH (limiter:EmbedLimiter) RETURN limiter") == []


async def test_what_a_provider_said_is_stored_short_in_one_line_and_without_secrets(
    queue: Neo4jUnderTest,
) -> None:
    config = replace(queue.config, secrets=("open-sesame",))
    limiter = open_queue(
        queue.driver, database=queue.database, config=config, clock=queue.clock
    ).limiter(RateLimits())

    await limiter.hold(MINUTE, owner="run-1", said=f"no\nopen-sesame {'x' * 1_000}")

    [row] = await queue.run("MATCH (limiter:EmbedLimiter) RETURN limiter.hold_said AS said")
    assert row["said"].startswith("no\\n*** xxx")
    assert len(row["said"]) == MAX_SAID


async def test_m9_tokens_are_limited_too(queue: Neo4jUnderTest) -> None:
    limiter = queue.queue.limiter(RateLimits(requests=100, tokens=1000))

    grants = [(await limiter.acquire(tokens=400)).is_granted for _ in range(3)]
    other = await queue.queue.limiter(RateLimits(tokens=1000), name="other").acquire(tokens=5000)

    assert grants == [True, True, False]
    assert other.is_granted


def test_m66_limiter_defaults(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-some-key")

    for limits in (RateLimits(), wiring.rate_limits(load_settings())):
        assert (limits.requests, limits.interval) == (20, timedelta(milliseconds=60_000))
        assert limits.tokens is None


async def test_m35_m54_events_are_counted_and_survive(queue: Neo4jUnderTest) -> None:
    items = await queue.leased(*"abcdefg")
    leases = [item.lease for item in items]
    await queue.jobs.release(leases[:2])
    await queue.fail(leases[2])
    await queue.fail(leases[3], category=ErrorCategory.CRITICAL)
    await queue.admin.cancel_job(items[4].lease.job_id, by="operator")
    await queue.complete(leases[4])
    await queue.put_entity("f", "other")
    await queue.complete(leases[5])
    await queue.expire()
    await queue.jobs.recover_expired(limit=10)
    await queue.admin.count({"requests": 3, "heartbeats_failed": 1})

    fresh = open_queue(queue.driver, database=queue.database)
    counters = (await fresh.metrics.read()).counters

    assert {name: number for name, number in counters.items() if number} == {
        "released": 2,
        "retried": 1,
        "given_back": 1,
        "cancelled": 1,
        "fenced": 1,
        "moved": 1,
        "recovered": 1,
        "requests": 3,
        "heartbeats_failed": 1,
    }


async def test_m55_job_status_tells_what_an_operator_asks(queue: Neo4jUnderTest) -> None:
    [item] = await queue.leased("ada", owner="run-3/x")
    queue.clock.advance(MINUTE)
    await queue.jobs.heartbeat([item.lease], duration=LEASE)

    held = await queue.admin.job_status(item.lease.job_id)
    await queue.fail(item.lease, message="timeout")
    failed = await queue.admin.job_status(item.lease.job_id)

    assert (held.status, held.lock_owner, held.run_id) == (
        JobStatus.PROCESSING,
        "run-3/x",
        "run-3",
    )
    assert (held.heartbeat_at, held.lock_until) == (queue.clock.now, queue.clock.now + LEASE)
    assert (held.model, held.version, held.attempts) == (MODEL, 1, 1)
    assert (failed.error, failed.error_category) == ("timeout", ErrorCategory.TRANSIENT)
    assert failed.run_after is not None


async def test_m56_counts_add_up_to_the_nodes(queue: Neo4jUnderTest) -> None:
    empty = await queue.admin.counts()
    for status in (JobStatus.COMPLETED, JobStatus.FAILED, JobStatus.CANCELLED):
        await queue.in_state(status, status)
    await queue.leased("leased")
    await queue.given_jobs("a", "b")

    counts = await queue.admin.counts()

    assert empty == dict.fromkeys(JobStatus, 0)
    assert list(counts.values()) == [2, 1, 1, 1, 1]
    assert sum(counts.values()) == len(await queue.nodes())


async def test_the_oldest_job_is_that_of_any_model(queue: Neo4jUnderTest) -> None:
    await queue.put_entity("ada")
    for model in ("b", "a", "c"):
        await queue.admin.enqueue([NewJob("ada", model)])
        queue.clock.advance(timedelta(minutes=1))

    metrics = await queue.queue.metrics.read()

    assert metrics.oldest_pending == timedelta(minutes=3)


async def test_metrics_show_depth_age_and_speed(queue: Neo4jUnderTest) -> None:
    a, b, c, d = await queue.leased("a", "b", "c", "d")
    await queue.complete(a.lease)
    await queue.fail(b.lease)
    await queue.fail(c.lease, category=ErrorCategory.PERMANENT)
    await queue.given_jobs("e")
    started = queue.clock.now
    queue.clock.advance(LEASE)

    metrics = await queue.queue.metrics.read(window=timedelta(minutes=10))

    assert (metrics.ready, metrics.delayed, metrics.due_retries) == (1, 0, 1)
    assert metrics.oldest_pending is not None
    assert metrics.oldest_pending >= queue.clock.now - started
    assert (metrics.expired_leases, metrics.suspects) == (1, 0)
    assert (metrics.completed_in_window, metrics.failed_in_window) == (1, 1)
    assert metrics.throughput_per_minute == pytest.approx(0.1)
    assert metrics.attempts == {1: 2}
    assert metrics.categories[ErrorCategory.PERMANENT] == 1
    assert d.lease.entity_uid == "d"


NEEDED = {
    ("UNIQUENESS", "EmbedSchema", ("name",)),
    ("UNIQUENESS", "EmbedQueue", ("name",)),
    ("UNIQUENESS", "EmbedCounters", ("name",)),
    ("UNIQUENESS", "EmbedLimiter", ("name",)),
    ("UNIQUENESS", "EmbedCoverage", ("name", "model")),
    ("UNIQUENESS", "EmbedJob", ("id",)),
    ("UNIQUENESS", "EmbedJob", ("entity_uid", "model", "version")),
    ("RANGE", "EmbedJob", ("processed_at",)),
    ("RANGE", "EmbedPending", ("model", "urgency", "ready_at")),
    ("RANGE", "EmbedPending", ("model", "ready_at")),
    ("RANGE", "EmbedPending", ("run_after",)),
    ("RANGE", "EmbedPending", ("model", "run_after")),
    ("RANGE", "EmbedPending", ("model", "suspect_at")),
    ("RANGE", "EmbedProcessing", ("lock_until",)),
    ("RANGE", "EmbedFailed", ("id",)),
    ("UNIQUENESS", "EmbedAudit", ("id",)),
    ("RANGE", "EmbedAudit", ("at",)),
    ("RANGE", "Entity", ("name",)),
    ("RANGE", "Entity", ("embedding_hash",)),
    ("VECTOR", "Entity", ("embedding",)),
}
"""Written out: what is taken out of the package is missed here."""


async def test_m62_m65_init_is_idempotent_and_complete(queue: Neo4jUnderTest) -> None:
    labels = [label for _, label, _ in NEEDED]
    for kind in ("CONSTRAINT", "INDEX"):
        found = await queue.run(
            f"SHOW {kind} YIELD name, labelsOrTypes AS on WHERE on[0] IN $labels RETURN name",
            labels=labels,
        )
        for row in found:
            await queue.run(f"DROP {kind} $name", name=row["name"])
    bare = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)

    async def install() -> schema.InstallReport:
        return await schema.install(
            queue.driver, database=queue.database, shape=SHAPE, dimensions=DIMENSIONS
        )

    reports = await asyncio.gather(*(install() for _ in range(4)))
    again = await install()
    state = await schema.inspect(queue.driver, database=queue.database, shape=SHAPE)

    names = {obj.name for obj in schema.schema_objects(SHAPE)}
    assert set(bare.missing) == names
    assert bare.problem is not None
    created = [name for report in reports for name in report.created]
    assert sorted(created) == sorted(names)
    assert again.created == ()
    assert (state.problem, state.missing) == (None, ())
    assert state.vector_index is not None
    assert state.vector_index.dimensions == DIMENSIONS
    found = await queue.run(
        """
        SHOW INDEXES YIELD type, labelsOrTypes, properties, owningConstraint
        WHERE labelsOrTypes IS NOT NULL
        RETURN CASE WHEN owningConstraint IS NULL THEN type ELSE 'UNIQUENESS' END AS kind,
               labelsOrTypes[0] AS label, properties
        """
    )
    there = {(row["kind"], row["label"], tuple(row["properties"])) for row in found}
    assert there >= NEEDED


async def test_m65_a_queue_without_its_schema_says_what_to_do(queue: Neo4jUnderTest) -> None:
    await queue.run("MATCH (q:EmbedQueue) DELETE q")

    with pytest.raises(SchemaError, match="embed-pipeline init"):
        await queue.lease()
    with pytest.raises(SchemaError, match="embed-pipeline init"):
        await queue.switch.pause(by="operator")
