"""Item 11: what a user of Neo4j would pick instead, on the same nodes, provider and index, in turn.

LangChain's ``Neo4jVector.from_existing_graph`` and neo4j-graphrag's embedder with
``upsert_vectors``, each in an environment and a process of its own, timed without its imports. Ours
is a scan of all nodes and a drain with all fences, in one process, by the same client of OpenAI.
Theirs keep no record of what is to be done: whoever is interrupted begins anew, a text that has
changed keeps its old vector, one refused text ends everything, and nobody shares a limit.
"""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from benchmarks.contestants import drain
from benchmarks.crew import Crew, hired
from benchmarks.plan import Plan
from benchmarks.provider import running_provider
from benchmarks.site import DIMENSIONS, MODEL, Site, on_site
from benchmarks.table import Line, at_least, per_second, ratios
from embed_pipeline.domain.embedding import RequestLimits
from embed_pipeline.embedding.openai import OpenAIEmbedder
from embed_pipeline.operations.scan import Scan
from embed_pipeline.store.connection import Connection
from embed_pipeline.store.schema.objects import ENTITY_VECTOR_INDEX_NAME
from tests.clients.packages import python_with
from tests.support.openai_server import KEY

LATENCY: Final = 0.05
SCRIPTS: Final = Path(__file__).with_name("others")
PACKAGES: Final = (
    "langchain-neo4j==0.11.0",
    "langchain-openai==1.7.3",
    "neo4j-graphrag[openai]==1.21.0",
)
AHEAD: Final = at_least(2)
NODES: Final = 2_000
"""LangChain takes a thousand at a time."""
MANY_NODES: Final = 20_000
ROUNDS: Final = 3
WARM_UP: Final = 1
LANGCHAIN: Final = "LangChain's from_existing_graph"
GRAPHRAG: Final = "neo4j-graphrag's embedder and upsert_vectors"


def lines(connection: Connection, plan: Plan, *, nodes: int) -> Iterator[Line]:
    """Measure each in turn, whoever is first in one round last in the next."""
    try:
        python = python_with(PACKAGES)
    except pytest.skip.Exception as reason:
        for name in (LANGCHAIN, GRAPHRAG):
            yield Line(11, f"scan and drain, against {name}", f"not run: {reason}", goal=AHEAD)
        return
    few = plan.plain_jobs
    on_site(connection, Site.prepare, nodes, has_index=True)
    rates: dict[str, list[float]] = {"ours": [], LANGCHAIN: [], GRAPHRAG: []}
    with running_provider(latency=LATENCY) as provider, hired(1, connection) as crew:

        def other(script: str, count: int) -> float:
            asked = _asked(connection, provider.base_url, count)
            return count / _seconds(python, script, asked)

        contestants: dict[str, Callable[[], float]] = {
            "ours": lambda: nodes / _ours(crew, provider.base_url),
            LANGCHAIN: lambda: other("langchain", nodes),
            # One request per text: as many as all others do would take minutes.
            GRAPHRAG: lambda: other("graphrag", few),
        }
        for number in range(WARM_UP + ROUNDS):
            names = list(contestants) if number % 2 else list(contestants)[::-1]
            for name in names:
                on_site(connection, Site.reset, nodes, jobs=False)
                rate = contestants[name]()
                on_site(connection, Site.check, few if name == GRAPHRAG else nodes)
                if number >= WARM_UP:
                    rates[name].append(rate)
    on_site(connection, Site.clear)
    for name in (LANGCHAIN, GRAPHRAG):
        yield Line(
            11,
            f"scan and drain of {nodes:,} nodes, against {name}; 1 process, the provider takes"
            " 50 ms per request; with a vector index",
            f"{per_second(rates['ours'])} against {per_second(rates[name])}",
            ratios(rates["ours"], rates[name]),
            AHEAD,
        )


def _ours(crew: Crew, provider: str) -> float:
    return crew.work(scan_and_drain, ("owner", provider)).seconds


async def scan_and_drain(site: Site, owner: str, provider: str) -> int:
    """Find what has no vector, and embed it."""
    await Scan.begin(site.queue.reconciler(MODEL)).go_on()
    embedder = OpenAIEmbedder(model=MODEL, dimensions=DIMENSIONS, api_key=KEY, base_url=provider)
    try:
        return await drain(site, owner, inputs=RequestLimits().inputs, embedder=embedder)
    finally:
        await embedder.close()


def _asked(connection: Connection, provider: str, most: int) -> dict[str, Any]:
    return {
        "uri": connection.uri,
        "auth": [connection.username, connection.password],
        "database": connection.database,
        "index": ENTITY_VECTOR_INDEX_NAME,
        "model": MODEL,
        "provider": provider,
        "key": KEY,
        "most": most,
    }


def _seconds(python: Path, script: str, asked: dict[str, Any]) -> float:
    done = subprocess.run(
        [str(python), str(SCRIPTS / f"use_{script}.py")],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")},
    )
    if done.returncode:
        raise RuntimeError(f"{script}: {done.stderr[-2000:]}")
    return float(done.stdout.splitlines()[-1])
