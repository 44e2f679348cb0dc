"""Faults of a provider's batches: no job pays for them, no budget does, and no other batch."""

from datetime import timedelta

import pytest

from embed_pipeline.domain.batch import REFUSED_FOR, BatchStatus
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.budget import Budget
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import OutageError
from embed_pipeline.domain.figures import queue_figures
from embed_pipeline.embedding import openai_batch
from embed_pipeline.worker.batch_parts import Step
from tests.support.batch_harness import HALF_PRICE, Batching, CrashError, crash_after, text_of
from tests.support.batch_server import BatchServer, line_outcome
from tests.support.drain_harness import DrainUnderTest

JOBS = 20
DAY = Budget(HALF_PRICE, tokens_per_day=10_000)
LONG_AFTER = timedelta(hours=31)


@pytest.fixture
async def waiting(queue: DrainUnderTest) -> DrainUnderTest:
    await queue.given(JOBS)
    return queue


async def charged_to_the_budget(queue: DrainUnderTest) -> int:
    [row] = await queue.run("MATCH (l:EmbedLimiter) RETURN l.day_tokens AS tokens")
    return row["tokens"]


async def assert_all_are_given_back(queue: DrainUnderTest) -> None:
    assert await queue.counted() == {"pending": JOBS}
    assert await queue.attempts() == {0: JOBS}


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (429, "insufficient_quota", "error"),
        (429, None, "insufficient_quota"),
        (400, "billing_hard_limit_reached", "error"),
        (None, "project_spend_limit_exceeded", "error"),
        (401, "invalid_api_key", "error"),
        (403, None, "error"),
        (404, "model_not_found", "error"),
    ],
)
async def test_m73_a_line_for_which_no_text_is_to_blame_opens_the_breaker_and_costs_no_attempt(
    waiting: DrainUnderTest,
    batching: Batching,
    api: BatchServer,
    status: int | None,
    code: str | None,
    kind: str,
) -> None:
    api.failing = {text_of("e0"): line_outcome(status, code, kind)}

    await batching.submit()
    done = await batching.tend()

    breaker = (await waiting.switch.state()).breaker
    assert await waiting.counted() == {"completed": JOBS - 1, "pending": 1}
    assert await waiting.attempts() == {0: 1, 1: JOBS - 1}
    assert breaker.status is BreakerStatus.OPEN
    assert (code or str(status if kind == "error" else kind)) in (breaker.reason or "")
    assert done.report.breaker is not None


@pytest.mark.parametrize(
    ("status", "code"), [(429, "rate_limit_exceeded"), (500, "server_error"), (503, None)]
)
async def test_m73_a_line_that_the_provider_could_not_do_costs_no_attempt(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer, status: int, code: str | None
) -> None:
    api.failing = {text_of("e0"): line_outcome(status, code)}

    await batching.submit()
    await batching.tend()

    assert await waiting.counted() == {"completed": JOBS - 1, "pending": 1}
    assert await waiting.attempts() == {0: 1, 1: JOBS - 1}
    assert (await waiting.switch.state()).breaker.status is BreakerStatus.CLOSED


@pytest.mark.parametrize("status", [503, None])
async def test_m127_a_provider_that_is_away_refuses_no_file(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer, status: int | None
) -> None:
    address = batching.base_url
    api.upload_status = status
    if status is None:
        batching.base_url = "http://127.0.0.1:1/v1"

    with pytest.raises(Exception, match=r"not now|Connection"):
        await batching.submit()
    held = await waiting.counted()
    api.upload_status, batching.base_url = None, address
    await batching.tend()

    assert held == {"processing": JOBS}
    await assert_all_are_given_back(waiting)
    assert (await batching.submit()).jobs == JOBS


async def test_m128_a_server_without_batches_keeps_nothing_of_the_budget(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    batching.budget = DAY
    api.has_batches = False

    for _ in range(3):
        await batching.submit()
        batching.clock.by += REFUSED_FOR + timedelta(seconds=1)
        await batching.tend()

    assert await charged_to_the_budget(waiting) == 0
    await assert_all_are_given_back(waiting)


async def test_m128_a_file_that_is_refused_keeps_nothing_of_the_budget(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    batching.budget = DAY
    api.refuses_file = "token_limit_exceeded"

    await batching.submit()
    sent = await charged_to_the_budget(waiting)
    await batching.tend()

    assert sent > 0
    assert await charged_to_the_budget(waiting) == 0
    await assert_all_are_given_back(waiting)


@pytest.mark.parametrize("step", [Step.LEASED, Step.UPLOADED])
async def test_m128_a_batch_that_was_never_made_keeps_nothing_of_the_budget(
    waiting: DrainUnderTest, batching: Batching, step: Step
) -> None:
    batching.budget = DAY
    with pytest.raises(CrashError):
        await batching.submit(crash_after(step))
    sent = await charged_to_the_budget(waiting)
    batching.clock.by += timedelta(minutes=3)

    await batching.tend()

    assert sent > 0
    assert await charged_to_the_budget(waiting) == 0
    await assert_all_are_given_back(waiting)


async def test_m128_a_batch_that_may_be_charged_keeps_its_part_of_the_budget(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    batching.budget = DAY
    api.is_done = False
    await batching.submit()
    sent = await charged_to_the_budget(waiting)
    await waiting.run("MATCH (b:EmbedBatch) SET b.model = 'former'")

    await batching.tend()

    assert await charged_to_the_budget(waiting) == sent > 0
    await assert_all_are_given_back(waiting)


@pytest.mark.parametrize(
    ("status", "code"), [(400, "unknown_parameter"), (422, None), (401, "invalid_api_key")]
)
async def test_m138_a_provider_that_refuses_every_text_of_a_batch_fails_no_job(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer, status: int, code: str | None
) -> None:
    batching.budget = DAY
    outcome = line_outcome(status, code)
    api.failing = {text_of(f"e{number}"): outcome for number in range(JOBS)}

    await batching.submit()
    done = await batching.tend()

    breaker = (await waiting.switch.state()).breaker
    await assert_all_are_given_back(waiting)
    assert breaker.status is BreakerStatus.OPEN
    assert code is None or code in (breaker.reason or "")
    assert str(status) in (breaker.reason or "")
    assert "EMBEDDING_MODEL" in (breaker.reason or "") or "OPENAI_API_KEY" in (breaker.reason or "")
    assert done.report.failed.total() == 0
    assert await charged_to_the_budget(waiting) == 0
    [batch] = await batching.queue.batches.every()
    assert batch.status is BatchStatus.REFUSED


async def test_m138_a_batch_of_which_nothing_could_be_done_leaves_the_work_to_drains(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    outcome = line_outcome(500, "server_error")
    api.failing = {text_of(f"e{number}"): outcome for number in range(JOBS)}

    await batching.submit()
    await batching.tend()

    await assert_all_are_given_back(waiting)
    assert (await waiting.switch.state()).breaker.status is BreakerStatus.CLOSED
    assert "500 error server_error" in ((await batching.submit()).reason or "")


async def test_m138_texts_that_are_refused_for_different_reasons_fail(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    api.failing = {text_of(f"e{number}"): line_outcome(400, "bad_text") for number in range(JOBS)}
    api.failing[text_of(f"e{JOBS - 1}")] = line_outcome(400, "content_filter")

    await batching.submit()
    await batching.tend()

    assert await waiting.counted() == {"failed": JOBS}
    assert (await waiting.switch.state()).breaker.status is BreakerStatus.CLOSED


async def test_m127_a_batch_whose_answer_is_gone_does_not_stop_the_others(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    bad = await batching.submit()
    api.files.pop(api.batches["batch_0"]["output_file_id"])
    await waiting.given(JOBS, prefix="later")
    await batching.submit()

    done = await batching.tend()

    assert await waiting.counted() == {"completed": JOBS, "processing": JOBS}
    assert done.collected == 1
    [line] = [line for line in done.lines if str(bad.batch) in line]
    assert "no such file" in line


@pytest.mark.parametrize("is_cut", [True, False])
async def test_m127_an_answer_that_can_never_be_read_ends_with_the_leases_and_is_told(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer, is_cut: bool
) -> None:
    sent = await batching.submit()
    if is_cut:
        api.cuts = "inside"
    else:
        api.files.pop(api.batches["batch_0"]["output_file_id"])

    await batching.tend()
    held = (await waiting.counted()).get("processing", 0)
    batching.clock.by = LONG_AFTER
    done = await batching.tend()

    [line] = done.lines
    assert held > 0
    assert str(sent.batch) in line
    assert "its jobs are given back, and are embedded and paid for again" in line
    assert (await waiting.counted()).get("pending") == held
    assert 0 in await waiting.attempts()
    assert await batching.queue.batches.every() == []


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """What never answers is waited for a second."""
    monkeypatch.setattr(openai_batch, "ANSWER_WITHIN", timedelta(seconds=1))


@pytest.mark.usefixtures("impatient")
async def test_m126_a_request_for_a_batch_that_is_never_answered_makes_no_second_one(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    api.hangs = frozenset({"create"})

    with pytest.raises(OutageError):
        await batching.submit()
    done = await batching.tend()

    assert done.collected == 1
    assert await waiting.counted() == {"completed": JOBS}
    assert (len(api.batches), api.charged) == (1, JOBS)


@pytest.mark.usefixtures("impatient")
async def test_m127_a_provider_that_answers_nothing_is_asked_about_one_batch_only(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await batching.submit()
    await waiting.given(JOBS, prefix="later")
    await batching.submit()
    api.hangs = frozenset({"poll"})

    done = await batching.tend()
    polls, api.hangs = api.polls, frozenset()
    await batching.tend()

    assert polls == 1
    assert "APITimeoutError" in str(done.outage)
    assert len(done.lines) == 2
    assert await waiting.counted() == {"completed": 2 * JOBS}


async def test_m127_a_key_that_may_delete_no_files_keeps_no_batch(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    api.keeps_files = True
    await batching.submit()

    done = await batching.tend()

    assert done.collected == 1
    assert "are left at the provider" in done.lines[1]
    assert await waiting.counted() == {"completed": JOBS}
    assert await batching.queue.batches.every() == []


async def test_m127_a_refused_batch_is_refused_also_where_its_file_cannot_be_deleted(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    batching.budget = DAY
    api.keeps_files, api.refuses_file = True, "token_limit_exceeded"
    await batching.submit()

    await batching.tend()

    [batch] = await batching.queue.batches.every()
    assert batch.status is BatchStatus.REFUSED
    assert await charged_to_the_budget(waiting) == 0
    await assert_all_are_given_back(waiting)


async def test_m126_vectors_that_a_batch_copies_are_counted_too(
    waiting: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    batching.shape = EntityShape(template="{entityType}")
    await batching.submit()
    await batching.tend()
    await waiting.given(5, prefix="same")

    again = await batching.submit()

    figures = queue_figures(await waiting.queue.metrics.read())
    assert again.jobs == 0
    assert (api.charged, figures["completed_total"], figures["cache_hits_total"]) == (20, 25, 5)
