"""Batches in Dagster: a drain submits, a tick asks and says how they stand, a run collects."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta

import pytest

from embed_pipeline.cli.status import look, rows_about
from embed_pipeline.defs import drains
from embed_pipeline.domain.checks import ACCOUNTED, FAILED, LEASES, OLDEST, RETENTION
from embed_pipeline.domain.figures import queue_figures
from embed_pipeline.domain.job import NewJob
from embed_pipeline.embedding import openai_batch
from embed_pipeline.operations import wiring
from embed_pipeline.operations.batches import BatchWork
from embed_pipeline.operations.reading import examine_everything
from embed_pipeline.worker import chores
from embed_pipeline.worker.chores import Submitting
from embed_pipeline.worker.options import Batching, DrainOptions
from embed_pipeline.worker.report import DrainReport, Ending
from tests.defs.conftest import Deployment, SensorUnderTest
from tests.support.batch_server import BatchServer, batch_server
from tests.support.dagster_results import figures
from tests.support.drain_harness import until
from tests.support.queue_harness import MODEL

JOBS = 10


@pytest.fixture
def api(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Iterator[BatchServer]:
    # Only the main thread can have handlers, and there the loop of the tests is running.
    monkeypatch.setattr(drains, "stopped_by_signals", lambda *_: contextlib.nullcontext())
    with batch_server() as server:
        server.is_done = False
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        monkeypatch.setenv("EMBEDDING_MODE", "batch")
        monkeypatch.setenv("EMBEDDING_BATCH_LEAST", "5")
        yield server


async def given_backlog(deployment: Deployment, jobs: int = JOBS) -> None:
    await deployment.queue.given_jobs(*(f"e{number}" for number in range(jobs)))


async def counted(deployment: Deployment) -> dict[str, int]:
    found = await deployment.queue.admin.counts()
    return {status.value: jobs for status, jobs in found.items() if jobs}


async def test_m126_a_drain_submits_a_tick_says_how_it_stands_and_a_run_collects(
    deployment: Deployment, api: BatchServer, sensor: Callable[..., SensorUnderTest]
) -> None:
    await given_backlog(deployment)
    batches = sensor("embed_batches")

    idle = await batches.tick()
    drained = figures(await deployment.run("drain_embed_queue", {"linger_seconds": 0}))
    waiting = await batches.tick()
    held = await counted(deployment)
    api.finish("batch_0")
    await deployment.queue.run("MATCH (b:EmbedBatch) SET b.polled_at = 0")
    ready = await batches.tick()
    collected = figures(await deployment.run("collect_batches"))

    assert idle.skip_message == "no batch is under way"
    assert drained["in_batches"] == JOBS
    assert held == {"processing": JOBS}
    assert re.search(
        r"with 10 jobs is in progress: 0 done, expires in 2[34] h", str(waiting.skip_message)
    )
    assert len(ready.run_requests) == 1
    assert (collected["collected"], collected["completed"]) == (1, JOBS)
    assert await counted(deployment) == {"completed": JOBS}
    assert api.charged == JOBS


async def test_m126_fewer_than_make_a_batch_are_drained(
    deployment: Deployment, api: BatchServer
) -> None:
    await given_backlog(deployment, 4)

    await deployment.run("drain_embed_queue", {"linger_seconds": 0})

    assert (api.batches, api.asked) == ({}, 1)
    assert await counted(deployment) == {"completed": 4}


async def test_m126_a_drain_can_be_told_otherwise(deployment: Deployment, api: BatchServer) -> None:
    await given_backlog(deployment)

    await deployment.run("drain_embed_queue", {"linger_seconds": 0, "mode": "sync"})

    assert (api.batches, api.asked) == ({}, 1)
    assert await counted(deployment) == {"completed": JOBS}


async def test_m126_a_drain_that_waits_for_jobs_goes_on_after_a_batch(
    deployment: Deployment, api: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chores, "SECONDS_BETWEEN_BATCHES", 0.0)
    queue = deployment.queue
    settings, stop = deployment.settings, asyncio.Event()
    options = replace(wiring.drain_options(settings), until_empty=False)
    embedder = wiring.open_embedder(settings)
    work = wiring.opened_drain(settings, embedder, owner="watch", options=options, stop=stop)

    async with work as (_, drain):
        running = asyncio.create_task(drain.run())
        for burst, done in ((4, 4), (4, 8), (JOBS, 8), (1, 9)):
            names = [f"{done}-{burst}-{number}" for number in range(burst)]
            for name in names:
                await queue.put_entity(name)
            await queue.admin.enqueue([NewJob(name, MODEL) for name in names])
            batched = JOBS if burst in (JOBS, 1) else 0
            wanted = (done, batched)
            await until(lambda w=wanted: (drain.report.completed, drain.report.in_batches) == w)
        stop.set()
        await running

    assert drain.report.ending is Ending.STOPPED
    assert await counted(deployment) == {"completed": 9, "processing": JOBS}


async def test_m126_a_drain_told_to_do_few_jobs_makes_no_batch_of_more(
    deployment: Deployment, api: BatchServer
) -> None:
    await given_backlog(deployment)

    few = figures(await deployment.run("drain_embed_queue", {"linger_seconds": 0, "max_jobs": 3}))
    more = figures(await deployment.run("drain_embed_queue", {"linger_seconds": 0, "max_jobs": 6}))

    assert (few["in_batches"], few["completed"]) == (0, 3)
    assert (more["in_batches"], more["completed"]) == (6, 0)


async def test_m126_a_drain_that_is_stopped_does_not_wait_for_its_file_to_be_sent(
    deployment: Deployment, api: BatchServer
) -> None:
    await given_backlog(deployment)
    settings, stop, looking = deployment.settings, asyncio.Event(), asyncio.Event()

    async def look(_: DrainReport) -> None:
        looking.set()
        await asyncio.Event().wait()

    batching = Batching(look, settings.batch_least)
    submitting = Submitting(batching, DrainReport("w", MODEL), stop, time.monotonic)
    work = asyncio.create_task(submitting.if_due())
    await looking.wait()
    stop.set()

    await asyncio.wait_for(work, 60)


async def test_m127_nothing_is_submitted_to_a_provider_that_answers_nothing(
    deployment: Deployment, api: BatchServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openai_batch, "ANSWER_WITHIN", timedelta(seconds=1))
    await given_backlog(deployment)
    await deployment.run("drain_embed_queue", {"linger_seconds": 0})
    await deployment.queue.given_jobs(*(f"later{number}" for number in range(JOBS)))
    await deployment.queue.run("MATCH (b:EmbedBatch) SET b.polled_at = 0")
    settings, said = deployment.settings, list[str]()
    embedder = wiring.open_embedder(settings)
    queue = wiring.queue_on(deployment.queue.driver, settings)
    work = BatchWork(queue, settings, embedder, DrainOptions(), submits=True, say=said.append)
    api.hangs = frozenset({"poll"})

    await work.look(DrainReport("w", MODEL))

    assert (len(api.files), len(api.batches)) == (1, 1)
    assert [line for line in said if "could not be looked after now: APITimeoutError" in line]
    assert await counted(deployment) == {"processing": JOBS, "pending": JOBS}


async def test_m126_a_drain_looks_every_minute_and_after_as_many_jobs_as_make_a_batch() -> None:
    now, looks, report = [1000.0], list[float](), DrainReport("w", MODEL)

    async def look(_: DrainReport) -> None:
        looks.append(now[0])

    submitting = Submitting(Batching(look, 5), report, asyncio.Event(), lambda: now[0])
    for seconds, leased in ((0, 0), (1, 4), (2, 5), (3, 9), (4, 10), (63, 10), (64, 10)):
        now[0], report.leased = 1000.0 + seconds, leased
        await submitting.if_due()

    assert looks == [1000.0, 1002.0, 1004.0, 1064.0]


async def test_m126_no_check_takes_a_batch_for_stuck_work(
    deployment: Deployment, api: BatchServer
) -> None:
    await given_backlog(deployment)
    await deployment.run("drain_embed_queue", {"linger_seconds": 0})

    # As ten hours later: every time that is written on the jobs is that much older.
    await deployment.queue.run(
        "MATCH (j:EmbedProcessing) UNWIND ['heartbeat_at', 'locked_at', 'created_at', 'run_after'] "
        "AS name WITH j, name WHERE j[name] IS NOT NULL SET j[name] = j[name] - 36000000"
    )
    _, verdicts = await examine_everything(deployment.queue.driver, deployment.settings)

    of_jobs = {LEASES, ACCOUNTED, OLDEST, FAILED, RETENTION}
    assert {verdict.check for verdict in verdicts if verdict.passed is not False} >= of_jobs


async def test_m126_status_says_how_batches_stand(deployment: Deployment, api: BatchServer) -> None:
    await given_backlog(deployment)
    await deployment.run("drain_embed_queue", {"linger_seconds": 0})
    settings = deployment.settings

    queue = wiring.queue_on(deployment.queue.driver, settings)
    seen = await look(queue, settings, settings)

    [(_, said)] = [row for row in rows_about(seen, settings) if row[0] == "Batch"]
    [plain] = [batch.figures(seen.metrics.at) for batch in seen.metrics.batches]
    assert "with 10 jobs is in progress: 0 done, expires in" in said
    assert (plain["jobs"], plain["done"], plain["status"]) == (JOBS, 0, "submitted")
    assert 80_000 < plain["expires_in_seconds"] <= 86_400
    found = queue_figures(seen.metrics)
    assert found["in_batches"] == JOBS
    assert 80_000 < found["batch_expires_seconds"] <= 86_400


async def test_m126_a_run_that_ended_takes_nothing_from_a_batch(
    deployment: Deployment, api: BatchServer, sensor: Callable[..., SensorUnderTest]
) -> None:
    await given_backlog(deployment)
    await deployment.run("drain_embed_queue", {"linger_seconds": 0})
    await deployment.queue.put_entity("new")
    await deployment.queue.admin.enqueue([NewJob("new", MODEL)])

    await sensor("embed_backlog").tick()
    await sensor("stale_leases").tick()
    await deployment.run("recover_stale_leases")

    assert (await counted(deployment))["processing"] == JOBS
