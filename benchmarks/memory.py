"""Item 4: the most memory that a drain takes, whatever the length of its vectors.

A drain is a process of its own that has loaded what a run of Dagster has loaded, and works through
a queue with a provider that answers at once: everything that may be in flight is in flight.
"""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from benchmarks.provider import running_provider
from benchmarks.site import MODEL, Site, on_site
from benchmarks.table import Line, at_most
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.store import schema
from embed_pipeline.store.connection import Connection
from tests.support.openai_server import KEY
from tests.support.project import ROOT

DIMENSIONS: Final = 3_072
"""The longest that are usual; shorter ones need less."""
JOBS: Final = 20_000
"""Twice what a drain holds at a time; that it stays flat up to 100,000 is seen in item 7."""
MEBIBYTE: Final = 2**20
ALLOWED: Final = 350
"""MiB."""
KIBIBYTE: Final = 1_024


def lines(connection: Connection) -> Iterator[Line]:
    """One drain."""
    with running_provider(latency=0) as provider:
        on_site(connection, prepare, JOBS, DIMENSIONS)
        found = _drain(environment(connection, provider.base_url, DIMENSIONS))
    if found["completed"] != JOBS:
        raise RuntimeError(f"of {JOBS} jobs {found['completed']} are completed")
    yield Line(
        4,
        f"most memory of a drain of {JOBS:,} jobs, {DIMENSIONS:,} dimensions",
        f"{found['peak'] / MEBIBYTE:.0f} MiB, {found['loaded'] / MEBIBYTE:.0f} of them before the"
        f" first job; {found['throughput']:,.0f}/s",
        [found["peak"] / MEBIBYTE / ALLOWED],
        at_most(1),
    )


async def prepare(site: Site, jobs: int, dimensions: int) -> None:
    """Entities with a job each, and an index for vectors of this length."""
    await site.prepare(jobs, has_index=False)
    database = site.connection.database
    await schema.install(site.driver, database=database, shape=EntityShape(), dimensions=dimensions)
    await site.reset(jobs, jobs=True)


def environment(connection: Connection, provider: str, dimensions: int) -> dict[str, str]:
    return {
        **os.environ,
        "NEO4J_URI": connection.uri,
        "NEO4J_USERNAME": connection.username,
        "NEO4J_PASSWORD": connection.password,
        "NEO4J_DATABASE": connection.database,
        "EMBED_ALLOW_PLAINTEXT_BOLT": "true",
        "EMBED_JOB_RETENTION_DAYS": "14",
        "EMBEDDING_MODEL": MODEL,
        "EMBEDDING_DIMENSIONS": str(dimensions),
        "EMBEDDING_RATE_LIMIT_TOKENS": "1000000",
        "EMBEDDING_PROVIDER": "openai",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": provider,
        "EMBEDDING_PROFILE": "openai",
    }


def _drain(environment: dict[str, str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.memory"]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


async def _drained() -> dict[str, Any]:
    """In the process of the drain."""
    import embed_pipeline.definitions  # noqa: F401 - every run loads it
    from embed_pipeline.operations import wiring
    from embed_pipeline.settings import load_settings

    settings = load_settings()
    loaded = peak()
    async with wiring.opened_drain(
        settings,
        wiring.open_embedder(settings),
        owner=wiring.owner_of("benchmark"),
        options=wiring.drain_options(settings),
        stop=asyncio.Event(),
    ) as (_, drain):
        report = await drain.run()
    return {
        "peak": peak(),
        "loaded": loaded,
        "completed": report.completed,
        "throughput": report.throughput,
    }


def peak() -> int:
    """Bytes; not by ``getrusage``, which counts the process that started this one."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    [line] = [line for line in status.splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * KIBIBYTE


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(_drained())) + "\n")
