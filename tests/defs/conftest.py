"""The project as Dagster runs it, on the real queue: settings, definitions and an instance."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import dagster as dg
import pytest

from embed_pipeline.defs import upkeep
from embed_pipeline.defs.build import build_location
from embed_pipeline.defs.site import Site
from embed_pipeline.settings import Settings, load_settings
from tests.conftest import TestServer
from tests.support.openai_server import KEY, OpenAIServer, openai_server
from tests.support.queue_harness import DIMENSIONS, MODEL, Neo4jUnderTest

NOBODY = "http://127.0.0.1:9/v1"
A_MOMENT = timedelta(minutes=1)


@dataclass
class Deployment:
    """What Dagster has loaded.

    Ops and sensors go by the server's time. The clock of ``queue`` starts a moment before it, and
    whatever a test does through ``queue`` happens at that time: set it back to make jobs old.
    """

    queue: Neo4jUnderTest
    instance: dg.DagsterInstance

    @property
    def settings(self) -> Settings:
        """Those of this moment."""
        return load_settings()

    @property
    def defs(self) -> dg.Definitions:
        """What the code location holds under the settings of this moment."""
        return fresh_definitions()

    async def run(
        self,
        name: str,
        config: dict[str, Any] | None = None,
        tags: dict[str, str] | None = None,
    ) -> dg.ExecuteInProcessResult:
        """Launch a job as the launchpad would; a failed run is handed back, not raised."""
        job = self.defs.resolve_job_def(Site((self.settings,)).name(name))
        return await self.launch(job, self.run_config(job.name, config), tags=tags)

    async def launch(
        self, job: dg.JobDefinition, run_config: dict[str, Any], **options: Any
    ) -> dg.ExecuteInProcessResult:
        """The same with a whole run config."""
        return await asyncio.to_thread(
            job.execute_in_process,
            instance=self.instance,
            run_config=run_config,
            raise_on_error=False,
            **options,
        )

    async def tick_schedule(self, name: str) -> Any:
        """Evaluate a schedule once, as the daemon would."""
        schedule = self.defs.resolve_schedule_def(name)

        def evaluate() -> Any:
            resources = dict(self.defs.resources or {})
            with dg.build_schedule_context(
                instance=self.instance,
                resources=resources,
                scheduled_execution_time=datetime.now(UTC),
            ) as context:
                return schedule.evaluate_tick(context)

        return await asyncio.to_thread(evaluate)

    @contextmanager
    def ago(self, duration: timedelta) -> Iterator[Neo4jUnderTest]:
        """What is done to the queue inside the block happened so long ago."""
        now = self.queue.clock.now
        self.queue.clock.now = now - duration
        yield self.queue
        self.queue.clock.now = now

    def run_config(self, name: str, config: dict[str, Any] | None) -> dict[str, Any]:
        """The config of the one op that every job has."""
        if not config:
            return {}
        [op] = self.defs.resolve_job_def(name).nodes
        return {"ops": {op.name: {"config": config}}}


@pytest.fixture
async def deployment(
    neo4j_server: TestServer,
    queue: Neo4jUnderTest,
    instance: dg.DagsterInstance,
    monkeypatch: pytest.MonkeyPatch,
) -> Deployment:
    """Everything in its ordinary state, and nothing in the queue."""
    settings = {
        **neo4j_server.environment,
        "EMBED_JOB_RETENTION_DAYS": "14",
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_MODEL": MODEL,
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": NOBODY,
        "EMBEDDING_PROFILE": "openai",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    [row] = await queue.run("RETURN datetime.realtime().epochMillis AS now")
    queue.clock.now = datetime.fromtimestamp(row["now"] / 1000, UTC) - A_MOMENT
    return Deployment(queue, instance)


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    """A Dagster instance in memory: one with files takes seconds to make."""
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
def provider(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Iterator[OpenAIServer]:
    """A provider that answers, for tests that embed."""
    with openai_server() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        yield server


def fresh_definitions() -> dg.Definitions:
    """What the code location holds under the settings of this moment."""
    return build_location(load_settings())


@dataclass
class SensorUnderTest:
    """A sensor as the daemon evaluates it: the cursor goes from tick to tick."""

    deployment: Deployment
    definition: dg.SensorDefinition
    cursor: str | None = None

    async def tick(self) -> Any:
        """Evaluate it once; a tick that fails leaves the cursor as it is."""
        data = await asyncio.to_thread(self._evaluate)
        self.cursor = data.cursor
        for event in data.asset_events:
            self.deployment.instance.report_runless_asset_event(event)
        return data

    def _evaluate(self) -> Any:
        with dg.build_sensor_context(
            instance=self.deployment.instance,
            resources=dict(self.deployment.defs.resources or {}),
            cursor=self.cursor,
            sensor_name=self.definition.name,
        ) as context:
            return self.definition.evaluate_tick(context)


@pytest.fixture
def sensor(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., SensorUnderTest]:
    """The sensor of this name, of a deployment with these settings."""

    def find(name: str, **settings: str) -> SensorUnderTest:
        for variable, value in settings.items():
            monkeypatch.setenv(variable, value)
        defs = fresh_definitions()
        sensors = {found.name: found for found in defs.sensors or ()}
        return SensorUnderTest(deployment, sensors[name])

    return find


@dataclass
class Now:
    """The time of this machine, as the sensors see it."""

    ms: int

    def advance(self, duration: timedelta) -> None:
        self.ms += duration // timedelta(milliseconds=1)


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> Now:
    """The time that paces the sensors; it moves only when it is told to."""
    time = Now(upkeep.now_ms())
    monkeypatch.setattr(upkeep, "now_ms", lambda: time.ms)
    return time
