"""Batches on the command line, through the real command."""

import json
from pathlib import Path

import pytest

from embed_pipeline.domain.job import JobStatus, NewJob
from tests.conftest import TestServer
from tests.support.batch_server import batch_server
from tests.support.openai_server import KEY
from tests.support.project import Project
from tests.support.queue_harness import DIMENSIONS, MODEL, Neo4jUnderTest

JOBS = 6


async def test_m126_drain_batch_submits_and_the_next_drain_collects_at_half_the_price(
    queue: Neo4jUnderTest, neo4j_server: TestServer, tmp_path: Path
) -> None:
    names = [f"e{number}" for number in range(JOBS)]
    for name in names:
        await queue.put_entity(name)
    with batch_server() as api:
        project = Project(
            tmp_path,
            {
                **neo4j_server.environment,
                "EMBED_JOB_RETENTION_DAYS": "14",
                "EMBEDDING_PROVIDER": "openai",
                "EMBEDDING_MODEL": MODEL,
                "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
                "EMBEDDING_PROFILE": "openai",
                "EMBEDDING_BATCH_LEAST": "5",
                "EMBEDDING_PRICE_USD_PER_MILLION": "1000",
                "OPENAI_API_KEY": KEY,
                "OPENAI_BASE_URL": api.base_url,
            },
        )
        full, half = (
            json.loads(project.run("plan", "--json", EMBEDDING_MODE=mode).stdout)
            for mode in ("sync", "batch")
        )
        await queue.admin.enqueue([NewJob(name, MODEL) for name in names])

        sent = project.run("drain", "--batch")
        held = await queue.admin.counts()
        await queue.run("MATCH (b:EmbedBatch) SET b.polled_at = null")
        collected = project.run("drain", "--batch")

    assert half["usd"] == pytest.approx(full["usd"] / 2)
    assert f"submitted with {JOBS} jobs" in sent.stdout
    assert f"Submitted in batches {JOBS}" in sent.stdout
    assert held[JobStatus.PROCESSING] == JOBS
    assert "is completed and collected" in collected.stdout
    assert (api.charged, api.asked) == (JOBS, 0)
    assert (await queue.admin.counts())[JobStatus.COMPLETED] == JOBS
