"""What people at a desk ask for: the newest jobs first, and a cancel undone."""

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.job import JobFilter, JobStatus, is_holder
from tests.support.queue_harness import Neo4jUnderTest

UIDS = ("ada", "bob", "cyd")


async def test_the_newest_jobs_come_first_and_page_by_page(queue: Neo4jUnderTest) -> None:
    await queue.given_jobs(*UIDS)

    first = await queue.queue.desk.newest(JobFilter(), limit=2)
    second = await queue.queue.desk.newest(JobFilter(), limit=2, after=first[-1].id)

    assert [job.entity_uid for job in first] == ["cyd", "bob"]
    assert [job.entity_uid for job in second] == ["ada"]


async def test_a_cancel_is_undone_in_bulk_but_not_what_the_queue_has_cancelled(
    queue: Neo4jUnderTest,
) -> None:
    await queue.given_jobs("ada", "bob")
    await queue.admin.cancel(JobFilter(), by="operator")
    await queue.given_jobs("old", version=1)
    await queue.given_jobs("old", version=2)
    desk = queue.queue.acting_as(Operator("alice")).desk

    preview = await desk.restore(JobFilter(), is_preview=True)
    assert (preview.count, preview.is_preview) == (2, True)
    assert sorted(preview.entity_uids) == ["ada", "bob"]
    assert await queue.statuses("ada", "bob") == [JobStatus.CANCELLED] * 2

    done = await desk.restore(JobFilter())

    assert (done.count, done.is_preview) == (2, False)
    assert await queue.statuses("ada", "bob") == [JobStatus.PENDING] * 2
    assert (await queue.job("ada")).cancelled_by is None
    ended = await desk.newest(JobFilter(statuses=frozenset({JobStatus.CANCELLED})))
    assert [(job.entity_uid, job.version) for job in ended] == [("old", 1)]
    assert (await desk.restore(JobFilter())).count == 0
    entries = await queue.actions()
    assert [(entry.action, entry.actor) for entry in entries][:1] == [("restore", "alice")]


async def test_holders_are_known_by_their_whole_name_and_by_their_run(
    queue: Neo4jUnderTest,
) -> None:
    await queue.leased("ada", owner="run-1/host/7")

    holders = await queue.queue.lookout.holders()

    assert holders == ["run-1/host/7"]
    assert is_holder("run-1", holders)
    assert is_holder("run-1/host/7", holders)
    assert not is_holder("run", holders)
