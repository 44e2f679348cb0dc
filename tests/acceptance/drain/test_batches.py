"""Large backlogs go through the provider's Batch API; no crash loses a job or pays twice."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Literal, cast

import pytest

from embed_pipeline.domain.batch import (
    LONGEST_BATCH,
    LOOK_AGAIN,
    LOOK_FOR_STRAYS,
    REFUSED_FOR,
    TURN,
    BatchStatus,
    ProviderBatch,
)
from embed_pipeline.domain.budget import Budget
from embed_pipeline.domain.figures import queue_figures
from embed_pipeline.domain.job import JobFilter
from embed_pipeline.domain.prices import NANO
from embed_pipeline.embedding.openai_batch import OpenAIBatches
from embed_pipeline.worker.batch_parts import Step, TurnLostError
from embed_pipeline.worker.batch_submitting import Submitted, Submitter
from tests.conftest import TestServer
from tests.support.batch_harness import HALF_PRICE, Batching, CrashError, crash_after, text_of
from tests.support.batch_server import BatchServer, numbers_for
from tests.support.drain_harness import DrainUnderTest
from tests.support.queue_harness import DIMENSIONS, MODEL

JOBS = 20
ROOT = Path(__file__).parents[3]


async def wait_for_nobody(batching: Batching) -> None:
    """Let the turn of whoever died end, and the second look at the provider be due."""
    batching.clock.by += max(TURN, LOOK_AGAIN) + timedelta(seconds=1)


async def work_to_the_end(queue: DrainUnderTest, batching: Batching) -> None:
    """What drains and ticks do, until nothing is left."""
    for _ in range(5):
        await wait_for_nobody(batching)
        await batching.tend()
        if (await queue.counted()).keys() == {"completed"} and not await left(queue):
            return
        await batching.submit()


async def left(queue: DrainUnderTest) -> int:
    [row] = await queue.run(
        "MATCH (b:EmbedBatch) WHERE b.status <> 'abandoned' RETURN count(b) AS batches"
    )
    return row["batches"]


async def assert_each_is_embedded_once(queue: DrainUnderTest, api: BatchServer) -> None:
    rows = await queue.run(
        "MATCH (e:Entity) RETURN e.name AS name, e.embedding AS vector ORDER BY name"
    )
    assert await queue.counted() == {"completed": JOBS}
    assert await queue.attempts() == {1: JOBS}
    assert api.charged == JOBS
    assert await left(queue) == 0
    figures = queue_figures(await queue.queue.metrics.read())
    assert figures["completed_total"] == JOBS
    assert figures["tokens_total"] == 7 * JOBS
    assert figures["cost_usd_total"] == 7 * JOBS * 500 / NANO
    assert api.files.keys() == set() or all(id_.startswith("file_in") for id_ in api.files)
    for row in rows:
        assert list(row["vector"]) == numbers_for(text_of(row["name"]), DIMENSIONS)


async def test_m126_a_batch_is_submitted_polled_and_collected(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.is_done = False

    sent = await batching.submit()
    waiting = await batching.tend()
    api.finish("batch_0")
    ready = await batching.tend(collects=False)
    done = await batching.tend()

    assert (sent.jobs, waiting.collected, ready.ready, done.collected) == (JOBS, 0, 1, 1)
    assert re.search(r"is in progress: 0 done, expires in 2[34] h", waiting.lines[0])
    assert done.lines[0].endswith("is completed and collected: 20 completed, 0 failed")
    await assert_each_is_embedded_once(queue, api)
    assert len(api.deleted) == 2
    assert api.files == {}


@pytest.mark.parametrize("step", Step)
async def test_m126_an_error_at_any_step_loses_nothing_and_pays_once(
    queue: DrainUnderTest, batching: Batching, api: BatchServer, step: Step
) -> None:
    await queue.given(JOBS)

    with pytest.raises(CrashError):
        await batching.submit_and_tend(crash_after(step))
    await work_to_the_end(queue, batching)

    await assert_each_is_embedded_once(queue, api)


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.proof)])
async def test_m126_killed_at_each_of_eight_points(
    queue: DrainUnderTest,
    batching: Batching,
    api: BatchServer,
    neo4j_server: TestServer,
    every: int,
) -> None:
    """CI takes one point in three: an error at each of them is a test of its own."""
    for step in list(Step)[::every]:
        await queue.wipe()
        await queue.given(JOBS)
        api.charged, api.batches = 0, {}
        batching.clock.by = timedelta(0)

        assert await run_until_killed(step, neo4j_server, api) == -9
        await work_to_the_end(queue, batching)

        await assert_each_is_embedded_once(queue, api)
        assert len(api.batches) == 1
        api.files.clear()


async def run_until_killed(step: Step, server: TestServer, api: BatchServer) -> int:
    given = {
        "step": step.name,
        "uri": server.uri,
        "username": server.username,
        "password": server.password,
        "database": server.database,
        "base_url": api.base_url,
    }
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.support.batch_main", json.dumps(given), cwd=ROOT
    )
    return await process.wait()


async def test_m126_two_pollers_at_once_do_it_once(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    await batching.submit()

    done = await asyncio.gather(*(batching.tend() for _ in range(4)))

    assert sum(tended.collected for tended in done) == 1
    await assert_each_is_embedded_once(queue, api)


async def test_m126_a_batch_is_left_to_who_works_on_it_until_his_turn_ends(
    queue: DrainUnderTest, batching: Batching
) -> None:
    batches = batching.queue.batches
    await batches.begin("one", model=MODEL, holder="a")

    early = await batches.take("one", holder="b")
    batching.clock.by += TURN + timedelta(seconds=1)
    late = await batches.take("one", holder="b")

    assert early is None
    assert late is not None
    assert not await batches.write("one", holder="a", jobs=1)


async def test_m126_an_answer_that_got_lost_makes_no_second_batch(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.drops_create = True

    with pytest.raises(Exception, match="the answer got lost"):
        await batching.submit()
    api.hides = True
    first = await batching.tend()
    api.hides = False
    await batching.tend()

    assert "looked for again" in first.lines[0]
    assert len(api.batches) == 1
    await assert_each_is_embedded_once(queue, api)


async def test_m126_what_the_provider_never_shows_is_given_up_after_the_second_look(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    with pytest.raises(CrashError):
        await batching.submit(crash_after(Step.HELD))

    await batching.tend()
    await batching.tend()
    soon = await queue.counted()
    await wait_for_nobody(batching)
    await batching.tend()

    assert soon == {"processing": JOBS}
    assert await queue.counted() == {"pending": JOBS}
    assert await queue.attempts() == {0: JOBS}


@dataclass
class Asleep:
    """A provider whose caller is suspended just before the batch is made."""

    provider: OpenAIBatches
    is_asleep: asyncio.Event = field(default_factory=asyncio.Event)
    wakes: asyncio.Event = field(default_factory=asyncio.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.provider, name)

    async def create(self, file: str, metadata: Mapping[str, str]) -> ProviderBatch:
        self.is_asleep.set()
        await self.wakes.wait()
        return await self.provider.create(file, metadata)


@asynccontextmanager
async def suspended_before_create(batching: Batching) -> AsyncIterator[asyncio.Task[Submitted]]:
    """Inside the block the others have given the jobs back; at its end the sleeper wakes up."""
    async with batching.parts() as parts:
        sleeper = Asleep(cast("OpenAIBatches", parts.provider))
        work = asyncio.create_task(Submitter(replace(parts, provider=sleeper)).submit())
        await sleeper.is_asleep.wait()
        for _ in range(2):
            await wait_for_nobody(batching)
            await batching.tend()
        yield work
        sleeper.wakes.set()
        await asyncio.wait({work})


async def test_m126_a_batch_that_is_asked_for_after_a_long_sleep_is_not_made(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)

    async with suspended_before_create(batching) as sleeper:
        given_back = await queue.counted()

    assert given_back == {"pending": JOBS}
    assert "no such file" in (sleeper.result().reason or "")
    assert (api.batches, api.charged) == ({}, 0)
    await work_to_the_end(queue, batching)
    await assert_each_is_embedded_once(queue, api)


async def test_m126_who_wakes_up_too_late_cancels_what_nobody_would_collect(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.is_done, api.takes_any_file = False, True

    async with suspended_before_create(batching) as sleeper:
        pass

    assert isinstance(sleeper.exception(), TurnLostError)
    assert [batch["status"] for batch in api.batches.values()] == ["cancelled"]
    assert await queue.counted() == {"pending": JOBS}


async def test_m126_what_was_made_too_late_is_found_by_its_metadata_and_cancelled(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.is_done, api.hides = False, True
    with pytest.raises(CrashError):
        await batching.submit(crash_after(Step.CREATED))
    for _ in range(2):
        await wait_for_nobody(batching)
        await batching.tend()

    api.hides = False
    soon = await batching.tend()
    batching.clock.by += LOOK_FOR_STRAYS
    late = await batching.tend()

    assert "should it turn up" in soon.lines[0]
    assert "turned up at the provider" in late.lines[0]
    assert api.batches["batch_0"]["status"] == "cancelled"
    assert await batching.queue.batches.every() == []
    assert await queue.counted() == {"pending": JOBS}


async def test_m126_what_others_have_adopted_is_not_cancelled(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.is_done = False

    async with batching.parts() as parts:
        begun = asyncio.Event()

        class Slow(Asleep):
            async def create(self, file: str, metadata: Mapping[str, str]) -> ProviderBatch:
                made = await self.provider.create(file, metadata)
                begun.set()
                await self.wakes.wait()
                return made

        slow = Slow(cast("OpenAIBatches", parts.provider))
        work = asyncio.create_task(Submitter(replace(parts, provider=slow)).submit())
        await begun.wait()
        await wait_for_nobody(batching)
        await batching.tend()
        slow.wakes.set()
        await asyncio.wait({work})

    assert api.batches["batch_0"]["status"] == "in_progress"
    api.finish("batch_0")
    await batching.tend()
    await assert_each_is_embedded_once(queue, api)


async def test_m126_a_batch_that_never_turns_up_is_forgotten(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    with pytest.raises(CrashError):
        await batching.submit(crash_after(Step.HELD))
    for _ in range(2):
        await wait_for_nobody(batching)
        await batching.tend()

    [kept] = await batching.queue.batches.every()
    batching.clock.by += LONGEST_BATCH
    await batching.tend()

    assert kept.status is BatchStatus.ABANDONED
    assert await batching.queue.batches.every() == []


async def test_m126_leases_of_a_batch_are_not_recovered_and_make_no_suspects(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.is_done = False
    await batching.submit()

    batching.clock.by = timedelta(hours=23)
    early = await batching.queue.jobs.recover_expired(limit=100)
    batching.clock.by = timedelta(hours=31)
    late = await batching.queue.jobs.recover_expired(limit=100)

    assert (len(early), len(late)) == (0, JOBS)
    assert await queue.attempts() == {0: JOBS}
    [row] = await queue.run("MATCH (j:EmbedPending) RETURN sum(j.expiries) AS expiries")
    assert row["expiries"] == 0


async def test_m127_changed_deleted_and_cancelled_meanwhile(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    await batching.submit()
    await queue.run(
        "MATCH (e:Entity) WHERE e.name IN ['e0','e1','e2'] SET e.observations = ['other']"
    )
    await queue.run("MATCH (e:Entity {name: 'e3'}) DETACH DELETE e")
    await queue.admin.cancel(JobFilter(entity_uids=("e4",)), by="somebody")

    done = await batching.tend()

    assert await queue.counted() == {"completed": JOBS - 5, "pending": 3, "cancelled": 2}
    assert (done.report.moved, done.report.superseded) == (3, 1)
    assert await left(queue) == 0


async def test_m127_an_expired_batch_gives_the_rest_back_with_its_attempt(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.expires_after = 12

    await batching.submit()
    await batching.tend()

    assert await queue.counted() == {"completed": 12, "pending": 8}
    assert await queue.attempts() == {0: 8, 1: 12}
    api.expires_after = None
    await work_to_the_end(queue, batching)
    assert api.charged == JOBS


async def test_m127_a_batch_of_a_former_model_is_cancelled_and_its_jobs_are_given_back(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.is_done = False
    await batching.submit()

    await queue.run("MATCH (b:EmbedBatch) SET b.model = 'former'")
    done = await batching.tend()

    assert "is of the model former, which is not used any more" in done.lines[0]
    assert [batch["status"] for batch in api.batches.values()] == ["cancelled"]
    assert (await queue.counted(), await queue.attempts()) == ({"pending": JOBS}, {0: JOBS})


async def test_m127_refused_lines_fail_their_own_jobs_and_tell_no_text(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.refused = frozenset(text_of(f"e{number}") for number in range(11))

    await batching.submit()
    await batching.tend()

    assert await queue.counted() == {"completed": JOBS - 11, "failed": 11}
    rows = await queue.run(
        "MATCH (j:EmbedFailed) RETURN DISTINCT j.error_category AS category, j.error AS error"
    )
    assert [(row["category"], row["error"]) for row in rows] == [
        ("PERMANENT", "the provider refused the text in a batch: 400 invalid_request_error")
    ]


@pytest.mark.parametrize("where", ["inside", "between"])
async def test_m127_an_answer_that_was_cut_is_read_again_and_not_paid_again(
    queue: DrainUnderTest,
    batching: Batching,
    api: BatchServer,
    where: Literal["inside", "between"],
) -> None:
    await queue.given(JOBS)
    await batching.submit()

    api.cuts = where
    first = await batching.tend()
    half = await queue.counted()
    api.cuts = None
    await batching.tend()

    assert "nothing is paid again" in first.lines[0]
    assert half["processing"] > 0
    await assert_each_is_embedded_once(queue, api)


async def test_m127_a_file_that_is_refused_leaves_the_work_to_drains_for_a_while(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.refuses_file = "token_limit_exceeded"

    await batching.submit()
    await batching.tend()
    again = await batching.submit()
    waiting = await queue.counted()
    batching.clock.by = REFUSED_FOR + timedelta(seconds=1)
    api.refuses_file = None
    await work_to_the_end(queue, batching)

    assert waiting == {"pending": JOBS}
    assert "token_limit_exceeded" in (again.reason or "")
    await assert_each_is_embedded_once(queue, api)


async def test_m127_a_server_without_batches_leaves_the_work_to_drains(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    api.has_batches = False

    sent = await batching.submit()

    assert "NotFoundError" in (sent.reason or "")
    assert await queue.counted() == {"pending": JOBS}
    assert await queue.attempts() == {0: JOBS}
    [batch] = await batching.queue.batches.every()
    assert batch.status is BatchStatus.REFUSED


async def test_m127_long_texts_are_left_to_drains(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    await queue.run(
        "MATCH (e:Entity {name: 'e0'}) SET e.observations = [$long]", long="a b " * 9_000
    )

    sent = await batching.submit()
    await batching.tend()

    assert (sent.jobs, sent.left) == (JOBS - 1, 1)
    assert await queue.counted() == {"completed": JOBS - 1, "pending": 1}
    assert (await queue.job("e0")).attempts == 0


async def test_m128_pausing_stops_submitting_and_not_collecting(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    await batching.submit()
    await queue.given(5, prefix="later")
    await queue.switch.pause(by="somebody")

    sent = await batching.submit()
    await batching.tend()

    assert sent.reason == "paused by somebody"
    assert await queue.counted() == {"completed": JOBS, "pending": 5}


async def test_m128_a_batch_never_exceeds_the_budget_and_costs_half(
    queue: DrainUnderTest, batching: Batching, api: BatchServer
) -> None:
    await queue.given(JOBS)
    batching.budget = Budget(HALF_PRICE, tokens_per_day=10)

    refused = await batching.submit()
    batching.budget = Budget(HALF_PRICE, usd_per_day=1.0)
    await batching.submit()
    await batching.tend()

    assert "EMBED_BUDGET_TOKENS_PER_DAY" in (refused.reason or "")
    [row] = await queue.run(
        "MATCH (l:EmbedLimiter) RETURN l.day_tokens AS t, l.day_nano_usd AS usd"
    )
    assert (row["t"], row["usd"]) == (7 * JOBS, 7 * JOBS * 500)
