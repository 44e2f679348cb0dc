"""Several embeddings in one code location: one set of jobs and sensors, assets for each."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import dagster as dg
import pytest

from embed_pipeline import prometheus
from embed_pipeline.defs import drains
from embed_pipeline.defs.build import build_defs, build_location
from embed_pipeline.defs.component import EmbeddingAttributes
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.settings import Settings
from embed_pipeline.settings.embedding_fields import VARIABLES
from embed_pipeline.settings.embeddings import DEPS
from tests.conftest import TestServer
from tests.support.leftovers import drop_queues
from tests.support.queue_harness import Neo4jUnderTest
from tests.support.sites import settings_of

MOVIES = {
    "EMBED_QUEUE": "movies",
    "EMBED_ENTITY_LABEL": "Movie",
    "EMBED_ENTITY_KEY": "title",
    "EMBED_ENTITY_TEMPLATE": "{title}",
    "EMBEDDING_DIMENSIONS": 8,
}
PEOPLE = {"EMBED_QUEUE": "people", "EMBED_ENTITY_LABEL": "Person", "EMBEDDING_DIMENSIONS": 16}


class Shared:
    """A code location of two embeddings on the real Neo4j."""

    def __init__(self, queue: Neo4jUnderTest, instance: dg.DagsterInstance, *all_: Settings):
        self.queue, self.instance, self.embeddings = queue, instance, all_
        self.defs = build_location(*all_)
        self.cursors: dict[str, str | None] = {}

    async def run(self, job: str, op: str, **config: Any) -> dg.ExecuteInProcessResult:
        return await asyncio.to_thread(
            self.defs.resolve_job_def(job).execute_in_process,
            instance=self.instance,
            run_config={"ops": {op: {"config": config}}},
            raise_on_error=False,
        )

    async def tick(self, name: str) -> Any:
        sensor = next(s for s in self.defs.sensors or () if s.name == name)

        def evaluate() -> Any:
            with dg.build_sensor_context(
                instance=self.instance,
                resources=dict(self.defs.resources or {}),
                cursor=self.cursors.get(name),
                sensor_name=name,
            ) as context:
                assert isinstance(sensor, dg.SensorDefinition)
                return sensor.evaluate_tick(context)

        data = await asyncio.to_thread(evaluate)
        self.cursors[name] = data.cursor
        for event in data.asset_events:
            self.instance.report_runless_asset_event(event)
        return data

    async def lengths(self) -> dict[str, list[int]]:
        """How long the vectors are, by label."""
        rows = await self.queue.run(
            "MATCH (n:Movie|Person) RETURN labels(n)[0] AS label, collect(size(n.embedding)) AS all"
        )
        return {row["label"]: row["all"] for row in rows}


@pytest.fixture(autouse=True)
def signals_are_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the main thread can have handlers, and there the loop of the tests is running."""
    monkeypatch.setattr(drains, "stopped_by_signals", lambda *_: contextlib.nullcontext())


@pytest.fixture
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as instance:
        yield instance


@pytest.fixture
async def shared(
    neo4j_server: TestServer, queue: Neo4jUnderTest, instance: dg.DagsterInstance
) -> AsyncIterator[Shared]:
    given = {**neo4j_server.environment, "EMBEDDING_PROVIDER": "mock"}
    both = Shared(queue, instance, settings_of(**given, **MOVIES), settings_of(**given, **PEOPLE))
    await queue.run("MATCH (n) DETACH DELETE n")
    for name in ("movies", "people"):
        made = await both.run("initialise_schema", "install_schema", embedding=name)
        assert made.success
    await queue.run(
        "CREATE (:Movie {title: 'Metropolis', version: 1}), (:Movie {title: 'M', version: 1}), "
        "(:Person {name: 'Thea', version: 1.0, observations: ['wrote both']})"
    )
    yield both
    await asyncio.to_thread(
        drop_queues, neo4j_server, queues=("movies", "people"), labels=("Movie", "Person")
    )


async def test_m93_one_sensor_and_one_job_serve_both_each_with_its_own_model(
    shared: Shared,
) -> None:
    await shared.tick("reconcile_entities")

    requests = (await shared.tick("embed_backlog")).run_requests

    configs = [request.run_config["ops"]["drain"]["config"] for request in requests]
    assert configs == [{"embedding": "movies"}, {"embedding": "people"}]
    assert [r.tags["embed_pipeline/embedding"] for r in requests] == ["movies", "people"]
    for config in configs:
        drained = await shared.run("drain_embed_queue", "drain", linger_seconds=0, **config)
        assert drained.success
    assert await shared.lengths() == {"Movie": [8, 8], "Person": [16]}
    said = (await shared.tick("embed_backlog")).skip_message
    assert said == "movies: the queue is empty; people: the queue is empty"


async def test_m93_pausing_one_leaves_the_other(shared: Shared) -> None:
    await shared.tick("reconcile_entities")
    await shared.run("pause_queue", "close_queue", embedding="movies")

    requests = (await shared.tick("embed_backlog")).run_requests

    assert [r.run_config["ops"]["drain"]["config"]["embedding"] for r in requests] == ["people"]


async def test_each_has_its_own_assets_checks_and_memory(shared: Shared) -> None:
    await shared.tick("queue_metrics")
    await shared.tick("reconcile_entities")

    for name, entities in (("movies", 2), ("people", 1)):
        key = dg.AssetKey([name, "entity_embeddings"])
        event = shared.instance.get_latest_materialization_event(key)
        assert event is not None
        assert event.asset_materialization is not None
        assert event.asset_materialization.metadata["entities"].value == entities
        metrics = dg.AssetKey([name, "embed_queue_metrics"])
        assert shared.instance.get_latest_materialization_event(metrics) is not None
        assert shared.defs.resolve_asset_graph().get(key).group_name == name
    remembered = json.loads(shared.cursors["reconcile_entities"] or "")["embeddings"]
    assert remembered.keys() == {"movies", "people"}


async def test_a_job_must_be_told_which_one_is_meant(shared: Shared) -> None:
    job = shared.defs.resolve_job_def("pause_queue")

    with pytest.raises(dg.DagsterInvalidConfigError, match="embedding"):
        dg.validate_run_config(job, {})
    with pytest.raises(dg.DagsterInvalidConfigError, match="cats"):
        dg.validate_run_config(job, {"ops": {"close_queue": {"config": {"embedding": "cats"}}}})


async def test_what_is_wrong_with_one_does_not_stop_the_other(
    shared: Shared, monkeypatch: pytest.MonkeyPatch
) -> None:
    await shared.tick("reconcile_entities")
    own = Neo4jResource.of

    def broken(self: Neo4jResource, queue: str) -> Neo4jResource:
        if queue == "movies":
            raise ConnectionError("its server is away, and the password is secret")
        return own(self, queue)

    monkeypatch.setattr(Neo4jResource, "of", broken)

    found = await shared.tick("embed_backlog")

    assert [r.tags["embed_pipeline/embedding"] for r in found.run_requests] == ["people"]
    said = (await shared.tick("stale_leases")).skip_message or ""
    assert "secret" not in said


async def test_the_figures_of_each_have_its_label(shared: Shared) -> None:
    await shared.tick("reconcile_entities")

    said = await asyncio.to_thread(prometheus.text, *shared.embeddings)

    assert 'embed_queue_jobs{embedding="movies",status="pending"} 2.0' in said
    assert 'embed_queue_jobs{embedding="people",status="pending"} 1.0' in said
    assert said.count("# TYPE embed_queue_jobs gauge") == 1


def test_a_component_takes_the_fields_of_the_file_and_what_is_upstream() -> None:
    fields = set(EmbeddingAttributes.model_fields)

    # Its name is taken there, by Dagster.
    assert fields - {"embedding_model"} | {"model"} == {*VARIABLES, DEPS}


def test_names_of_a_second_queue_do_not_repeat_those_of_the_first() -> None:
    first, second = settings_of(EMBEDDING_PROVIDER="mock"), settings_of(**MOVIES)

    both = dg.Definitions.merge(build_defs(first), build_defs(second))

    dg.Definitions.validate_loadable(both)
    assert {"drain_embed_queue", "movies_drain_embed_queue"} <= {j.name for j in both.jobs or ()}


def test_another_project_with_a_neo4j_of_its_own_can_take_it_in() -> None:
    @dg.asset
    def written_upstream(neo4j: dg.ResourceParam[str]) -> None: ...

    theirs = dg.Definitions(assets=[written_upstream], resources={"neo4j": "theirs"})

    dg.Definitions.validate_loadable(
        dg.Definitions.merge(theirs, build_defs(settings_of(EMBEDDING_PROVIDER="mock")))
    )
