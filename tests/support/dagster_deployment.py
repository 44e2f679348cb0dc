"""The whole deployment for a test: Dagster's web server, daemon and workers, Neo4j, a provider."""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, LiteralString, TypeVar
from unittest.mock import patch

import psutil
from neo4j import Driver, GraphDatabase

from embed_pipeline.devserver.dagster_process import DagsterProcess
from embed_pipeline.devserver.ports import free_port
from tests.conftest import OWN_PREFIXES, TestServer
from tests.support.dagster_graphql import DagsterGraphQL, Run
from tests.support.memento import remember
from tests.support.openai_server import KEY, OpenAIServer
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import ROOT, Project
from tests.support.queue_harness import DIMENSIONS

Answer = TypeVar("Answer")

POLL_SECONDS = 0.5
LOG_TAIL_LINES = 40
WORKER_TAG = "embed_pipeline/worker"

SETTINGS = {
    "EMBED_JOB_RETENTION_DAYS": "14",
    "EMBED_JOB_RECOVERY_INTERVAL": "5000",
    "EMBED_JOB_STOP_GRACE_MS": "80000",
    "EMBED_METRICS_INTERVAL": "5000",
    "EMBED_RECONCILE_INTERVAL": "1000",
    "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
    "EMBEDDING_RATE_LIMIT_TOKENS": "100000",
    "EMBEDDING_PROVIDER": "openai",
    "OPENAI_API_KEY": KEY,
}
"""Ticks come soon; otherwise as in production. Leases are long: nobody waits for them to expire.
So is the grace of a stop: a request that is let go answers at once, but not on a busy machine."""


def polled(
    question: Callable[[], Answer | None], what: str, *, seconds: float = PATIENCE_SECONDS
) -> Answer:
    """Ask until the answer is truthy.

    Raises:
        TimeoutError: it never was; with the last answer.
    """
    deadline = time.monotonic() + seconds
    while not (answer := question()):
        if time.monotonic() > deadline:
            raise TimeoutError(
                f"not within {seconds:.0f} s: {what}; the last answer was {answer!r}"
            )
        time.sleep(POLL_SECONDS)
    return answer


@dataclass(frozen=True)
class Graph:
    """The user's graph, written and read by somebody who knows nothing of the queue."""

    driver: Driver
    database: str

    def run(self, statement: LiteralString, **parameters: Any) -> list[dict[str, Any]]:
        result = self.driver.execute_query(statement, parameters, database_=self.database)
        return [record.data() for record in result.records]

    def wipe(self) -> None:
        """Delete entities and jobs, and open the queue; a daemon may be using it meanwhile."""
        self.run("MATCH (n) WHERE n:Entity OR n:EmbedJob DETACH DELETE n")
        self.run("MATCH (q:EmbedQueue) SET q.paused = false, q.breaker = 'closed'")

    def load(self, count: int, *, skip: int = 0) -> None:
        """Write the next entities of the sample, and their relations, as Memento does."""
        sample = sample_graph()
        entities = sample["entities"][skip : skip + count]
        new = {entity["name"] for entity in entities}
        known = {entity["name"] for entity in sample["entities"][: skip + count]}
        relations = [
            relation
            for relation in sample["relations"]
            if {relation["from"], relation["to"]} <= known
            and {relation["from"], relation["to"]} & new
        ]
        remember(self.run, entities, relations)

    def counts(self) -> dict[str, int]:
        """Jobs by status; only the statuses that occur."""
        rows = self.run("MATCH (j:EmbedJob) RETURN j.status AS status, count(*) AS jobs")
        return {row["status"]: row["jobs"] for row in rows}

    def jobs(self) -> list[dict[str, Any]]:
        rows = self.run("MATCH (j:EmbedJob) RETURN j {.*} AS job ORDER BY j.entity_uid")
        return [row["job"] for row in rows]

    def owners(self) -> set[str]:
        """Who holds jobs at this moment."""
        rows = self.run(
            "MATCH (j:EmbedJob) WHERE j.lock_owner IS NOT NULL RETURN DISTINCT j.lock_owner AS who"
        )
        return {row["who"] for row in rows}

    def breaker(self) -> str:
        """Whether the queue gives out jobs: closed, open or half_open."""
        [row] = self.run("MATCH (q:EmbedQueue) RETURN q.breaker AS breaker")
        return row["breaker"]

    def embedded(self) -> int:
        """How many entities have a vector of the right length."""
        [row] = self.run(
            "MATCH (e:Entity) WHERE size(e.embedding) = $length RETURN count(e) AS entities",
            length=DIMENSIONS,
        )
        return row["entities"]


def sample_graph() -> dict[str, list[dict[str, Any]]]:
    return json.loads((ROOT / "embed_pipeline/devserver/sample_graph.json").read_text())


@dataclass
class Deployment:
    """What an operator has in front of him, and the power switch."""

    project: Project
    graph: Graph
    provider: OpenAIServer
    port: int = field(default_factory=free_port)
    _dagster: DagsterProcess | None = None

    @property
    def dagster(self) -> DagsterProcess:
        assert self._dagster is not None, "the deployment is not running"
        return self._dagster

    @property
    def ui(self) -> DagsterGraphQL:
        return DagsterGraphQL(self.dagster.url)

    @property
    def home(self) -> Path:
        return self.project.folder / ".embed_pipeline" / "dagster"

    def start(self, **environment: str) -> None:
        """Start Dagster, on what an earlier one has left behind, and wait until it is loaded."""
        with patch.dict(os.environ, {**self.project.environment, **environment}):
            self._dagster = DagsterProcess(
                project=self.project.folder, home=self.home, port=self.port, on_alarm=lambda _: None
            )
        self._dagster.wait_until_loaded()

    def stop(self) -> None:
        """End it in the orderly way."""
        if self._dagster is not None:
            self._dagster.stop()
            self._dagster = None

    def kill(self) -> None:
        """Pull the plug: kill -9 for everything at once, run workers included."""
        group = self.dagster.group
        os.killpg(group, signal.SIGKILL)
        self.dagster.wait()
        self.wait_until(lambda: not processes_of(group), "the group is gone")
        self._dagster = None

    def wait_until(
        self,
        question: Callable[[], Answer | None],
        what: str,
        *,
        seconds: float = PATIENCE_SECONDS,
    ) -> Answer:
        """Ask until the answer is truthy.

        Raises:
            TimeoutError: it never was; with the last answer and the end of Dagster's log.
        """
        try:
            return polled(question, what, seconds=seconds)
        except TimeoutError as error:
            raise TimeoutError(
                f"{error}, jobs are {self.graph.counts()}\n{self._log_tail()}"
            ) from None

    def wait_until_completed(self, jobs: int) -> None:
        """Wait until there are so many jobs and all of them are completed."""
        self.wait_until(
            lambda: self.graph.counts() == {"completed": jobs}, f"all {jobs} jobs are completed"
        )

    def wait_until_idle(self) -> None:
        """Wait until no run is under way; drains linger for a while when their work is done."""
        self.wait_until(lambda: all(run.is_over for run in self.ui.runs()), "no run is under way")

    def wait_for_run(self, run_id: str, *statuses: str) -> Run:
        """Wait until the run has one of these statuses; without any, until it is over."""

        def reached() -> Run | None:
            run = self.ui.run(run_id)
            return run if (run.status in statuses if statuses else run.is_over) else None

        return self.wait_until(reached, f"run {run_id} is {statuses or 'over'}")

    def wait_for_holder(self) -> Run:
        """Wait until a drain has sent requests; return its run, which carries its worker's tag.

        The provider's gate must be closed, or the drain may be done before anybody looks.
        """

        def holder() -> Run | None:
            owners = self.graph.owners() if self.provider.requests else set()
            if not owners:
                return None
            [owner] = owners
            run = self.ui.run(owner.partition("/")[0])
            return run if WORKER_TAG in run.tags else None

        return self.wait_until(holder, "a drain holds jobs and its run says who works on it")

    def work(self, job: str, config: dict[str, Any] | None = None) -> Run:
        """Launch a job and wait until it has succeeded."""
        run = self.wait_for_run(self.ui.launch(job, config))
        assert run.status == "SUCCESS", self.ui.errors(run.id)
        return run

    def latest_skip_reason(self, sensor: str) -> str:
        """Why the sensor started nothing when it looked last; empty if it did."""
        # The newest may still be watching.
        ended = [tick for tick in self.ui.sensor(sensor, ticks=2).ticks if tick.ended]
        return (ended[0].skip_reason if ended else None) or ""

    def _log_tail(self) -> str:
        log = self.home / "dagster.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        telling = [line for line in lines if "Checking for new runs" not in line]
        return "\n".join([*telling[-LOG_TAIL_LINES:], f"The whole log: {log}"])


def worker_pid(run: Run) -> int:
    """The process that works on a drain; its tag says host:pid:start."""
    return int(run.tags[WORKER_TAG].split(":")[-2])


def processes_of(group: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for process in psutil.process_iter():
        try:
            is_alive = process.status() != psutil.STATUS_ZOMBIE
            if is_alive and os.getpgid(process.pid) == group:
                found.append(process.pid)
        except (psutil.Error, ProcessLookupError):
            continue
    return found


@contextmanager
def deployment(
    project: Project, server: TestServer, provider: OpenAIServer, **environment: str
) -> Iterator[Deployment]:
    """A running deployment on an empty graph; everything of it ends with the block."""
    settings = {
        **SETTINGS,
        **server.environment,
        "OPENAI_BASE_URL": provider.base_url,
        "EMBEDDING_PROFILE": "openai",
        **environment,
    }
    configured = Project(project.folder, {**project.environment, **settings})
    auth = (server.username, server.password)
    with (
        patch.dict(os.environ, without_own_settings(), clear=True),
        GraphDatabase.driver(server.uri, auth=auth) as driver,
    ):
        graph = Graph(driver, server.database)
        graph.run("MATCH (n) DETACH DELETE n")
        made = configured.run("init", "--change-model")
        assert made.returncode == 0, made.stderr
        started = Deployment(configured, graph, provider)
        try:
            started.start()
            yield started
        finally:
            provider.gate.set()
            started.stop()
            graph.run("MATCH (n) DETACH DELETE n")


def without_own_settings() -> dict[str, str]:
    """The environment without the developer's settings; a fixture per test comes too late here."""
    return {name: value for name, value in os.environ.items() if not name.startswith(OWN_PREFIXES)}
