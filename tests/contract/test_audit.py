"""Every action of an operator leaves one entry, whatever holds the queue; nothing else does."""

import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.audit import AuditEntry, Operator, OperatorAction
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.errors import ErrorCategory, TransitionRefusedError
from embed_pipeline.domain.job import JobFilter, JobStatus, NewJob
from tests.support.queue_harness import MODEL, QueueUnderTest

WEEK = timedelta(days=7)
ALICE = Operator("alice", "5f0c7e1a-run")
OF_MODEL = JobFilter(model=MODEL)
PERMANENT = JobFilter(categories=frozenset({ErrorCategory.PERMANENT}))


def seen(entry: AuditEntry) -> tuple[str, str, int]:
    return entry.action, entry.filter, entry.count


async def given_two_of_each(queue: QueueUnderTest) -> None:
    for status in (JobStatus.FAILED, JobStatus.COMPLETED):
        for number in range(2):
            await queue.in_state(f"{status}-{number}", status)
    await queue.leased("held-0", "held-1", owner="run-1/a")
    await queue.given_jobs("waiting-0", "waiting-1")


ACTIONS: dict[OperatorAction, tuple[Callable[[Any], Awaitable[Any]], str, int]] = {
    OperatorAction.CANCEL: (
        lambda q: q.admin.cancel(OF_MODEL, by="alice", reason="not needed"),
        f"model: {MODEL}; reason: not needed",
        4,
    ),
    OperatorAction.RETRY: (lambda q: q.admin.retry_failed(PERMANENT), "category: PERMANENT", 2),
    OperatorAction.RELEASE: (lambda q: q.admin.release_owner("run-1"), "owner: run-1", 2),
    OperatorAction.RECOVER: (lambda q: q.admin.recover_owner("run-1"), "owner: run-1", 2),
    OperatorAction.PAUSE: (lambda q: q.switch.pause(by="alice"), "", 1),
    OperatorAction.RESUME: (lambda q: q.switch.resume(close_breaker=True), "close breaker", 1),
    OperatorAction.FORCE: (
        lambda q: q.admin.enqueue([NewJob("completed-0", MODEL, force=True)]),
        "entity: completed-0",
        1,
    ),
}


@pytest.mark.parametrize("action", ACTIONS)
async def test_an_action_leaves_one_entry_that_says_who_what_and_how_many(
    queue: QueueUnderTest, action: OperatorAction
) -> None:
    act, asked, count = ACTIONS[action]
    await given_two_of_each(queue)
    queue.act_as(ALICE)

    await act(queue)

    [entry] = await queue.actions()
    assert seen(entry) == (action, asked, count)
    assert (entry.actor, entry.run_id) == ("alice", "5f0c7e1a-run")
    assert (entry.at, entry.is_complete) == (queue.clock.now, True)


@pytest.mark.parametrize("action", ACTIONS)
async def test_what_nobody_asked_for_leaves_no_entry(
    queue: QueueUnderTest, action: OperatorAction
) -> None:
    await given_two_of_each(queue)

    await ACTIONS[action][0](queue)

    assert await queue.actions() == []


async def test_a_purge_leaves_one_entry(queue: QueueUnderTest) -> None:
    await given_two_of_each(queue)
    queue.clock.advance(WEEK + timedelta(minutes=1))
    queue.act_as(ALICE)

    await queue.purge(WEEK)

    [entry] = await queue.actions()
    assert seen(entry) == (OperatorAction.PURGE, "ended more than 7 days ago", 4)
    assert entry.is_complete


async def test_previews_and_what_changes_nothing_leave_none(queue: QueueUnderTest) -> None:
    await given_two_of_each(queue)
    queue.act_as(ALICE)

    await queue.admin.cancel(OF_MODEL, by="alice", preview=True)
    await queue.admin.retry_failed(PERMANENT, preview=True)
    await queue.admin.cancel(JobFilter(model="of nobody"), by="alice")
    await queue.admin.release_owner("somebody else")
    await queue.admin.recover_owner("somebody else")
    await queue.admin.enqueue([NewJob("waiting-0", MODEL)])
    await queue.purge(WEEK)
    completed = await queue.job("completed-0")
    with pytest.raises(TransitionRefusedError):
        await queue.admin.cancel_job(completed.id, by="alice")

    assert await queue.actions() == []


async def test_the_work_of_a_worker_is_nobodys_action(queue: QueueUnderTest) -> None:
    queue.act_as(ALICE)
    first, second, third = await queue.leased("ada", "bob", "cyd")

    await queue.complete(first.lease)
    await queue.fail(second.lease)
    await queue.jobs.release([third.lease])
    await queue.switch.open_breaker("quota gone")
    await queue.switch.close_breaker()

    assert await queue.actions() == []


async def test_entries_are_read_from_the_newest_and_kept_for_the_retention(
    queue: QueueUnderTest,
) -> None:
    queue.act_as(ALICE)
    await queue.switch.pause(by="alice")
    queue.clock.advance(timedelta(days=3))
    await queue.switch.resume()

    assert [entry.action for entry in await queue.actions()] == ["resume", "pause"]
    queue.clock.advance(timedelta(days=4))
    assert await queue.purge_actions(WEEK) == 0
    queue.clock.advance(timedelta(minutes=1))
    assert await queue.purge_actions(WEEK) == 1
    assert [entry.action for entry in await queue.actions()] == ["resume"]


async def test_resuming_closes_the_breaker_only_when_asked_to(queue: QueueUnderTest) -> None:
    await queue.switch.open_breaker("quota gone")

    await queue.switch.resume()
    assert (await queue.switch.state()).breaker.status is BreakerStatus.OPEN

    await queue.switch.resume(close_breaker=True)
    assert (await queue.switch.state()).breaker.status is BreakerStatus.CLOSED


async def test_a_retry_keeps_the_errors_it_clears_in_the_history(queue: QueueUnderTest) -> None:
    await queue.given_jobs("ada")
    for message in ("first", "second", "third"):
        [item] = (await queue.lease()).jobs
        await queue.fail(item.lease, message=message)
        queue.clock.advance(timedelta(hours=1))

    await queue.admin.retry_failed(JobFilter())

    job = await queue.job("ada")
    assert (job.error, job.error_category, job.error_stack) == (None, None, None)
    said = [json.loads(entry)["message"] for entry in job.error_history]
    assert said == ["first", "second", "third"]
    [item] = (await queue.lease()).jobs
    await queue.fail(item.lease, message="fourth")
    assert len((await queue.job("ada")).error_history) == 4
