"""Item 5: from the acknowledged write of an entity until the search finds its vector.

At rest, with a drain at work, and on standby. ``python -m benchmarks.latency`` measures these
alone; with ``--write`` it draws docs/images/latency.svg.
"""

import argparse
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, LiteralString

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.ticker import LogLocator, NullFormatter

from benchmarks.provider import running_provider
from benchmarks.site import DIMENSIONS, MODEL, Site, on_site, pool
from benchmarks.table import HEAD, Goal, Line, at_most
from benchmarks.usage import Usage, cpu
from embed_pipeline.defs.runs import DRAIN_JOB
from embed_pipeline.devserver.config import Memory
from embed_pipeline.devserver.temporary import temporary_server
from embed_pipeline.domain.job import NewJob
from embed_pipeline.store.connection import Connection
from tests.conftest import TestServer
from tests.support.dagster_deployment import WORKER_TAG, Deployment, deployment, worker_pid
from tests.support.dagster_graphql import Run
from tests.support.project import make_project

PICTURE: Final = Path(__file__).parents[1] / "docs" / "images" / "latency.svg"
LATENCY: Final = 0.05
"""Of the provider, in seconds."""
SETTINGS: Final = {
    "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
    "EMBEDDING_MODEL": MODEL,
    "EMBEDDING_RATE_LIMIT_TOKENS": "100000",
    # As in production: the tests let ticks come sooner.
    "EMBED_JOB_RECOVERY_INTERVAL": "60000",
    "EMBED_METRICS_INTERVAL": "60000",
    "EMBED_RECONCILE_INTERVAL": "60000",
}
WAITS: Final = 5
"""Entities whose way to the search is timed, in each mode."""
SILENCE: Final = 13
"""Seconds after which a drain looks as seldom as it ever does."""
FROM_REST: Final = "from rest"
AT_WORK: Final = "while a drain runs"
ON_STANDBY: Final = "on standby"
GOALS: Final[Mapping[str, Goal]] = {
    FROM_REST: at_most(5),
    AT_WORK: at_most(0.3),
    ON_STANDBY: at_most(0.5),
}
COST_OF_STANDBY: Final = at_most(2)
NEAREST: Final[LiteralString] = """
CALL db.index.vector.queryNodes('entity_embeddings', 5, $vector) YIELD node
WHERE node.name = $uid RETURN node.name AS uid
"""
CREATE_ENTITY: Final[LiteralString] = """
CREATE (:Entity {name: $uid, entityType: 'thing', observations: '["new"]', version: 1})
"""


def lines(waits: Mapping[str, Sequence[float]]) -> Iterator[Line]:
    """Seconds are judged as they are: nothing that could be compared waits for a person."""
    for mode, seconds in waits.items():
        yield Line(
            5,
            f"from the acknowledged write of an entity to its vector in the search, {mode}",
            f"median {statistics.median(seconds):.2f} s",
            seconds,
            GOALS[mode],
        )


@dataclass(frozen=True, slots=True)
class CostOfStandby:
    """Processor seconds in a minute."""

    drain: float
    """Of the one that stands by; the few entities that come are included."""
    silence: Usage
    """Of everybody while nothing comes."""

    def lines(self) -> Iterator[Line]:
        """Only the drain's is judged: at rest without standby the others have goals."""
        yield Line(
            5,
            "processor time of the drain that stands by, in a minute; seconds",
            f"{self.drain:.2f} s",
            [self.drain],
            COST_OF_STANDBY,
        )
        yield Line(
            5,
            "on standby, while nothing comes, in a minute: processor seconds of all processes of"
            " Dagster, the drain among them, and of Neo4j",
            f"{self.silence.dagster:.1f} s, {self.silence.neo4j:.1f} s",
        )


def without_standby(connection: Connection, dagster: Deployment) -> dict[str, list[float]]:
    """Seconds from rest, and seconds with a drain at work, in turn."""
    cold, warm = [], []
    for number in range(WAITS):
        dagster.wait_until_idle()
        cold.append(wait_for(connection, dagster, f"cold-{number}"))
        # The drain stays for a while; nobody needs it any more.
        warm.append(wait_for(connection, dagster, f"warm-{number}"))
        for run in dagster.ui.runs(DRAIN_JOB):
            if not run.is_over:
                dagster.ui.terminate(run.id)
        dagster.graph.run("MATCH (e:Entity) DETACH DELETE e")
    return {FROM_REST: cold, AT_WORK: warm}


def on_standby(
    connection: Connection, dagster: Deployment, neo4j_pid: int
) -> tuple[list[float], CostOfStandby]:
    """Seconds where a drain is always there, and what it costs that it is."""
    dagster.stop()
    dagster.start(EMBED_STANDBY="true")
    run = dagster.wait_until(lambda: _at_work(dagster), "a drain stands by")
    pid = worker_pid(run)
    seconds, silent_seconds, silence = [], 0.0, Usage()
    before, began = cpu(pid), time.monotonic()
    for number in range(WAITS):
        used, since = Usage.of(dagster, neo4j_pid), time.monotonic()
        time.sleep(SILENCE + random.random())
        silence += Usage.of(dagster, neo4j_pid) - used
        silent_seconds += time.monotonic() - since
        seconds.append(wait_for(connection, dagster, f"standby-{number}"))
        dagster.graph.run("MATCH (e:Entity) DETACH DELETE e")
    drain = (cpu(pid) - before) * 60 / (time.monotonic() - began)
    return seconds, CostOfStandby(drain, silence * (60 / silent_seconds))


def wait_for(connection: Connection, dagster: Deployment, uid: str) -> float:
    """Seconds until the vector of an entity that is written now is found."""
    vector = pool(1)[0]
    began = on_site(connection, write_and_enqueue, uid)
    while not dagster.graph.run(NEAREST, vector=vector, uid=uid):
        time.sleep(0.01)
        if time.monotonic() > began + 120:
            raise TimeoutError(f"{uid} is not found by the search")
    return time.monotonic() - began


def draw(waits: Mapping[str, Sequence[float]]) -> None:
    """Every entity as a point, the median as a line, the goal beside it."""
    mpl.use("svg")
    # Ids of its own making would be others in every run.
    mpl.rcParams.update({"svg.hashsalt": "latency", "font.size": 9, "axes.grid": True})
    figure, axes = plt.subplots(figsize=(7, 2.8))
    for place, (mode, seconds) in enumerate(waits.items()):
        axes.plot(seconds, [place] * len(seconds), "o", alpha=0.6, color="tab:blue")
        middle = [statistics.median(seconds)] * 2
        axes.plot(middle, [place - 0.25, place + 0.25], color="tab:blue")
        goal = GOALS[mode].most or 0.0
        axes.plot([goal] * 2, [place - 0.25, place + 0.25], color="tab:red", linestyle=":")
    axes.set(xscale="log", xlabel="seconds; line: median, dotted: goal")
    axes.set_yticks(range(len(waits)), list(waits))
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_title("From the acknowledged write of an entity to its vector in the search")
    figure.savefig(PICTURE, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.latency", description=__doc__)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with (
        temporary_server(memory=Memory(heap="2g", pagecache="1g")) as server,
        tempfile.TemporaryDirectory(prefix="benchmark-latency-") as folder,
        running_provider(latency=LATENCY) as provider,
    ):
        known = TestServer(server.uri, server.username, server.password, server.database)
        on_site(known.connection, Site.prepare, 0, has_index=True)
        with deployment(make_project(Path(folder)), known, provider, **SETTINGS) as dagster:
            waits = without_standby(known.connection, dagster)
            pid = server.status().pid or 0
            waits[ON_STANDBY], cost = on_standby(known.connection, dagster, pid)
    if arguments.write:
        draw(waits)
    rows = "\n".join(map(str, [*lines(waits), *cost.lines()]))
    sys.stdout.write(f"{HEAD}\n{rows}\n")


async def write_and_enqueue(site: Site, uid: str) -> float:
    """The moment at which the write of the entity was acknowledged; its job comes after it."""
    await site.run(CREATE_ENTITY, uid=uid)
    acknowledged = time.monotonic()
    await site.queue.admin.enqueue([NewJob(uid, MODEL)])
    return acknowledged


def _at_work(dagster: Deployment) -> Run | None:
    runs = dagster.ui.runs(DRAIN_JOB, statuses=["STARTED"])
    return next((run for run in runs if WORKER_TAG in run.tags), None)


if __name__ == "__main__":
    main()
