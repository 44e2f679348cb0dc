"""Entries of the audit tell the truth, also about what broke off, and stay within their bounds."""

from datetime import timedelta

import pytest

from embed_pipeline.domain.audit import MAX_ACTOR, MAX_FILTER, Operator, OperatorAction
from embed_pipeline.domain.errors import CleanupFailedError
from embed_pipeline.domain.job import JobFilter, JobStatus
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.store import filtering, queue_admin
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher import purge as cypher_purge
from tests.support.queue_harness import ACME, MODEL, Neo4jUnderTest

ALICE = Operator("alice")
WEEK = timedelta(days=7)
ALL = JobFilter(model=MODEL)


class DiedError(Exception):
    """The process ends here."""


@pytest.fixture
def pages_of_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(filtering, "PAGE", 2)
    monkeypatch.setattr(queue_admin, "_PAGE", 2)


@pytest.mark.usefixtures("pages_of_two")
@pytest.mark.parametrize("action", ["cancel", "release", "recover"])
async def test_an_action_in_several_transactions_is_one_entry_with_the_sum(
    queue: Neo4jUnderTest, action: str
) -> None:
    await queue.leased(*"abcde", owner="run-1/a")
    queue.act_as(ALICE)

    if action == "cancel":
        await queue.admin.cancel(ALL, by="alice")
    elif action == "release":
        await queue.admin.release_owner("run-1")
    else:
        await queue.admin.recover_owner("run-1")

    [entry] = await queue.actions()
    assert (entry.action, entry.count, entry.is_complete) == (action, 5, True)


async def test_ending_a_pause_of_the_provider_is_one_entry_and_finding_none_is_no_entry(
    queue: Neo4jUnderTest,
) -> None:
    queue.act_as(ALICE)
    limiter = queue.limiter(RateLimits())
    await limiter.hold(timedelta(minutes=5), owner="run-1/a", said="slow down")

    await limiter.clear()
    await limiter.clear()

    [entry] = await queue.actions()
    assert (entry.actor, entry.action, entry.count) == ("alice", OperatorAction.CLEAR_LIMIT, 1)


@pytest.mark.usefixtures("pages_of_two")
async def test_an_action_that_died_half_way_says_how_far_it_came(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await queue.given_jobs(*"abcde")
    queue.act_as(ALICE)
    change_jobs, pages = filtering.change_jobs, 0

    async def die_in_the_third(*args: object) -> None:
        nonlocal pages
        pages += 1
        await change_jobs(*args)  # pyright: ignore[reportArgumentType]
        if pages == 3:
            raise DiedError

    monkeypatch.setattr(filtering, "change_jobs", die_in_the_third)
    with pytest.raises(DiedError):
        await queue.admin.cancel(ALL, by="alice")

    [entry] = await queue.actions()
    assert (entry.count, entry.is_complete) == (4, False)
    assert (await queue.admin.counts())[JobStatus.CANCELLED] == 4


@pytest.mark.parametrize("use_apoc", [True, False])
async def test_a_purge_counts_what_it_deleted_also_when_a_batch_failed(
    queue: Neo4jUnderTest, monkeypatch: pytest.MonkeyPatch, use_apoc: bool
) -> None:
    for uid in "abcde":
        await queue.in_state(uid, JobStatus.COMPLETED)
    queue.clock.advance(2 * WEEK)
    queue.act_as(ALICE)
    monkeypatch.setattr("embed_pipeline.store.purge.BATCH", 1)
    for name in ("INNER", "PURGE_WITHOUT_APOC"):
        broken = "WITH job, 1 / size(replace(job.entity_uid, 'c', '')) AS boom\n"
        text = getattr(cypher_purge, name)
        text = text.replace("SET job._lock = $token\n", f"SET job._lock = $token\n{broken}", 1)
        monkeypatch.setattr(cypher_purge, name, text)

    with pytest.raises(CleanupFailedError):
        await queue.queue.purge.purge_terminal(retention=WEEK, use_apoc=use_apoc)

    [entry] = await queue.actions()
    assert (entry.action, entry.count, entry.is_complete) == (OperatorAction.PURGE, 4, False)
    assert [node["entity_uid"] for node in await queue.nodes()] == ["c"]


async def test_orphans_cleared_page_by_page_are_one_entry(queue: Neo4jUnderTest) -> None:
    for uid in "abc":
        await queue.in_state(uid, JobStatus.COMPLETED)
    await queue.run("MATCH (e:Entity) SET e.validTo = 1")
    for uid in "xyz":
        await queue.run("CREATE (:Entity {name: $uid})", uid=uid)
    queue.act_as(ALICE)
    reconciler, cleared, cursor = queue.queue.reconciler(MODEL), 0, ""

    while cursor is not None:
        page = await reconciler.page(after=cursor, limit=1, cleared_before=cleared)
        cleared, cursor = cleared + page.cleared, page.cursor

    [entry] = await queue.actions()
    assert (entry.action, entry.count, entry.is_complete) == ("clear_orphans", 3, True)


async def test_entries_of_two_queues_are_apart(queue: Neo4jUnderTest) -> None:
    acme = Neo4jUnderTest(queue.driver, queue.database, clock=queue.clock, config=ACME)
    await acme.install()
    acme.act_as(ALICE)
    queue.act_as(Operator("bob"))

    await acme.switch.pause(by="alice")
    await queue.switch.pause(by="bob")

    assert [entry.actor for entry in await acme.actions()] == ["alice"]
    assert [entry.actor for entry in await queue.actions()] == ["bob"]


async def test_an_entry_is_short_in_one_line_and_without_secrets(queue: Neo4jUnderTest) -> None:
    secret = "canary-secret-4711"
    config = QueueConfig(secrets=(secret,))
    real = Neo4jUnderTest(queue.driver, queue.database, clock=queue.clock, config=config)
    await real.given_jobs("ada")
    real.act_as(Operator(f"eve\x1b[31m {secret} " + "x" * 1_000))

    await real.admin.cancel(ALL, by="eve", reason=f"{secret}\nsk-abcdefghijkl " + "y" * 2_000)

    [entry] = await real.actions()
    assert len(entry.actor) <= MAX_ACTOR
    assert len(entry.filter) <= MAX_FILTER
    assert entry.filter.startswith(f"model: {MODEL}; reason: ***")
    for text in (entry.actor, entry.filter):
        assert text.isprintable()
        assert secret not in text
        assert "sk-abcdefghijkl" not in text


async def test_entries_are_found_by_age_and_by_action(queue: Neo4jUnderTest) -> None:
    queue.act_as(ALICE)
    await queue.switch.pause(by="alice")
    queue.clock.advance(timedelta(hours=2))
    await queue.switch.resume()
    audit = queue.queue.audit

    lately = await audit.recent(within=timedelta(hours=1))
    pauses = await audit.recent(actions=["pause"])
    last = await audit.recent(limit=1)

    assert [entry.action for entry in lately] == ["resume"]
    assert [entry.action for entry in pauses] == ["pause"]
    assert [entry.action for entry in last] == ["resume"]


async def test_any_transaction_of_a_queue_can_record_its_action(queue: Neo4jUnderTest) -> None:
    queue.act_as(ALICE)
    note = queue.queue.audit.note(OperatorAction.CLEAR_LIMIT, "limiter: default")

    await queue.queue.database.write(lambda tx: note.write(tx, 1))

    [entry] = await queue.actions()
    assert (entry.action, entry.filter, entry.count) == ("clear_limit", "limiter: default", 1)
