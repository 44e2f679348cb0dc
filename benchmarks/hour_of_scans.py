"""An hour of scans over enormous texts: what the code server of a real deployment takes.

``python -m benchmarks.hour_of_scans`` starts Neo4j, web server, daemon and code server, writes 80
entities of 10 MB among 20,000, lets the sensors scan them every minute, and looks every ten seconds
at the memory of each process. ``--minutes 5`` is a try. Too long for ``make bench``; the figures
stand in docs/performance.md.
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import psutil

from benchmarks.long_texts import CHARACTERS, CREATE_LONG, LONG, SHORT, WORD
from embed_pipeline.devserver.config import Memory
from embed_pipeline.devserver.temporary import temporary_server
from tests.conftest import TestServer
from tests.support.dagster_deployment import Deployment, deployment
from tests.support.openai_server import openai_server
from tests.support.project import make_project

MEBIBYTE: Final = 2**20
LOOK_SECONDS: Final = 10
CODE_SERVER: Final = ("api", "grpc")
MEMORY: Final = Memory(heap="3g", pagecache="3g")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    minutes = parser.parse_args().minutes
    with (
        temporary_server(memory=MEMORY) as server,
        openai_server() as provider,
        tempfile.TemporaryDirectory() as folder,
        deployment(
            make_project(Path(folder)),
            TestServer(uri=server.uri, username=server.username, password=server.password),
            provider,
            EMBED_RECONCILE_INTERVAL="60000",
            EMBED_METRICS_INTERVAL="60000",
            EMBED_JOB_RECOVERY_INTERVAL="60000",
        ) as started,
    ):
        _write(started)
        _watch(started, minutes)
        # More at once would be too much for the server to delete.
        for number in range(LONG):
            started.graph.run("MATCH (e:Entity {name: $uid}) DETACH DELETE e", uid=f"a{number}")
    return 0


def _write(started: Deployment) -> None:
    text = (WORD * (CHARACTERS // len(WORD) + 1))[:CHARACTERS]
    for number in range(LONG):
        started.graph.run(CREATE_LONG, uid=f"a{number}", text=f"{number} {text}")
    started.graph.run(
        "UNWIND range(1, $count) AS n CREATE (:Entity {name: 'e' + n, entityType: 'short', "
        "observations: ['short text ' + n], version: 1})",
        count=SHORT,
    )
    _say(f"{LONG} texts of {CHARACTERS:,} characters among {SHORT:,}")


def _watch(started: Deployment, minutes: float) -> None:
    """Look at the code server, with the processes it has started for ticks, but without drains."""
    began, first, most, samples, now = time.monotonic(), 0, 0, 0, 0
    next_said = 0.0
    while (passed := time.monotonic() - began) < 60 * minutes:
        now = _resident(started)
        if now:
            samples, most = samples + 1, max(most, now)
            first = first or now
        if passed >= next_said:
            counts = started.graph.counts()
            _say(
                f"{passed / 60:5.1f} min: code server {now / MEBIBYTE:.0f} MiB, most "
                f"{most / MEBIBYTE:.0f} MiB; jobs {counts}"
            )
            next_said += 300
        time.sleep(LOOK_SECONDS)
    said = started.latest_skip_reason("reconcile_entities")
    _say(
        f"after {minutes:g} minutes, {samples} looks: code server {now / MEBIBYTE:.0f} MiB, most "
        f"{most / MEBIBYTE:.0f} MiB ({most / 1e6:.0f} MB), first {first / MEBIBYTE:.0f} MiB; {said}"
    )


def _resident(started: Deployment) -> int:
    """Bytes of the process that loads the definitions; the largest, where there are several."""
    found = [0]
    for process in psutil.process_iter(["cmdline", "environ"]):
        words = process.info["cmdline"] or []
        home = (process.info["environ"] or {}).get("DAGSTER_HOME", "")
        is_ours = str(started.project.folder) in home
        if is_ours and set(CODE_SERVER) <= set(words):
            try:
                found.append(process.memory_info().rss)
            except psutil.NoSuchProcess:
                continue
    return max(found)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
