"""Batches in Dagster: a drain submits, a tick asks and says how they stand, a run collects."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from embed_pipeline.cli.status import look, rows_about
from embed_pipeline.defs import drains
from embed_pipeline.domain.job import NewJob
from embed_pipeline.operations import wiring
from tests.defs.conftest import Deployment, SensorUnderTest
from tests.support.batch_server import BatchServer, batch_server
from tests.support.dagster_results import figures
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
    assert "with 10 jobs is in progress: 0 done, expires in 23 h" in waiting.skip_message
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


async def test_m126_status_says_how_batches_stand(deployment: Deployment, api: BatchServer) -> None:
    await given_backlog(deployment)
    await deployment.run("drain_embed_queue", {"linger_seconds": 0})
    settings = deployment.settings

    queue = wiring.queue_on(deployment.queue.driver, settings)
    seen = await look(queue, settings, settings)

    [(_, said)] = [row for row in rows_about(seen, settings) if row[0] == "Batch"]
    [plain] = [batch.figures(seen.metrics.at) for batch in seen.batches]
    assert "with 10 jobs is in progress: 0 done, expires in" in said
    assert (plain["jobs"], plain["done"], plain["status"]) == (JOBS, 0, "submitted")
    assert 80_000 < plain["expires_in_seconds"] <= 86_400


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
