"""Whatever is raised inside, Dagster stores and shows it redacted and alone (I19, T3).

Dagster writes an error with its cause and its context into the event log and the compute log.
"""

import traceback
from collections.abc import Iterator
from typing import Any, NoReturn

import dagster as dg
import pytest

from embed_pipeline.defs.border import guarded
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import REPOSITORY_TAG
from embed_pipeline.domain.errors import UnreachableError
from tests.defs.conftest import Deployment, SensorUnderTest

TEXT = "treated for Parkinson"
SECRET = "wJalrXUtnFEMI/K7MDENG"
NEEDED = {"release_leases_of_run": {"run_id": "x" * 8}, "explain_entity": {"entity": "ada"}}
"""What cannot be launched as it stands."""


def quote_everything() -> NoReturn:
    """As libraries do: the request with its headers and texts, and a second error on the way."""
    try:
        raise ValueError(f"header {SECRET}, body {TEXT}")
    except ValueError:
        raise OverflowError(f"cannot wait for {SECRET} and {TEXT}")  # noqa: B904 - the context


@pytest.fixture(autouse=True)
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOMEBODY_ELSES_TOKEN", SECRET)


@pytest.fixture
def broken(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Deployment:
    """Everything that ops, assets, sensors and schedules do fails with an error that quotes."""
    monkeypatch.setattr(Neo4jResource, "of", lambda *_: quote_everything())
    return deployment


def assert_clean(said: str, where: str) -> None:
    assert "builtins.OverflowError" in said, where
    assert "in quote_everything" in said, where
    assert [word for word in (SECRET, TEXT) if word in said] == [], where


async def test_every_op_is_guarded(broken: Deployment) -> None:
    """Also those behind assets and checks."""
    graph = broken.defs.resolve_asset_graph()
    keys = graph.executable_asset_keys - {dg.AssetKey("queue_metrics_history")}
    # Each alone: an asset after one that failed is not even tried.
    looks = [
        dg.define_asset_job(f"look_{number}", selection=dg.AssetSelection.assets(key))
        for number, key in enumerate(sorted(keys))
    ]
    checks = dg.define_asset_job("check", selection=dg.AssetSelection.all_asset_checks())
    defs = dg.Definitions.merge(broken.defs, dg.Definitions(jobs=[*looks, checks]))
    tried = set()
    for job in defs.resolve_all_job_defs():
        if job.name == "__ASSET_JOB":
            # Holds what the others hold, and some of it by day only.
            continue
        needed = NEEDED.get(job.name)
        config = broken.run_config(job.name, needed) if needed else {}
        partition = "2026-01-01" if job.partitions_def else None
        # As Dagster marks every run; the pruning does nothing without.
        tags = {REPOSITORY_TAG: "__repository__@elsewhere"}
        result = await broken.launch(job, config, partition_key=partition, tags=tags)
        for event in result.all_events:
            if event.is_step_failure:
                tried.add(event.step_key)
                error = event.step_failure_data.error
                assert error is not None
                assert (error.cause, error.context) == (None, None), event.step_key
                assert_clean(str(event.event_specific_data), str(event.step_key))

    assert tried == {node.name for job in defs.resolve_all_job_defs() for node in job.nodes}


async def test_every_sensor_is_guarded(broken: Deployment) -> None:
    for definition in broken.defs.sensors or ():
        if isinstance(definition, dg.AutomationConditionSensorDefinition):
            # Dagster evaluates it by itself; nothing of ours runs in it.
            continue
        with pytest.raises(dg.Failure) as caught:
            await SensorUnderTest(broken, definition).tick()

        assert_alone(caught.value, definition.name)


async def test_every_schedule_is_guarded(broken: Deployment) -> None:
    for schedule in broken.defs.schedules or ():
        with pytest.raises(Exception, match="Error occurred during the evaluation") as caught:
            await broken.tick_schedule(schedule.name)

        assert isinstance(caught.value.__cause__, dg.Failure)
        assert_alone(caught.value.__cause__, schedule.name)


def assert_alone(error: BaseException, where: str) -> None:
    assert error.__cause__ is None, where
    assert error.__context__ is None, where
    assert_clean("".join(traceback.format_exception(error)), where)


@guarded
def raising(error: BaseException) -> None:
    try:
        quote_everything()
    except OverflowError as context:
        raise error from context


@guarded
def yielding(error: BaseException) -> Iterator[int]:
    yield 1
    raise error


def test_our_own_words_are_shown_and_redacted() -> None:
    with pytest.raises(dg.Failure) as caught:
        raising(UnreachableError(f"nothing answers at bolt://{SECRET}@host; start it"))

    assert str(caught.value) == "nothing answers at bolt://***@host; start it"
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


def test_a_failure_keeps_its_figures_and_whether_it_may_be_tried_again() -> None:
    with pytest.raises(dg.Failure) as caught:
        raising(dg.Failure(f"no: {SECRET}", metadata={"completed": 3}, allow_retries=False))

    assert caught.value.description == "no: ***"
    assert caught.value.metadata["completed"].value == 3
    assert not caught.value.allow_retries
    assert (caught.value.__cause__, caught.value.__context__) == (None, None)


@pytest.mark.parametrize(
    "signal",
    [
        dg.DagsterExecutionInterruptedError(),
        KeyboardInterrupt(),
        SystemExit(3),
        dg.RetryRequested(max_retries=2),
    ],
    ids=lambda signal: type(signal).__name__,
)
def test_a_signal_stays_what_it_is_and_carries_nothing_along(signal: BaseException) -> None:
    with pytest.raises(type(signal)) as caught:
        raising(signal)

    assert caught.value is signal
    assert (signal.__cause__, signal.__context__) == (None, None)


def test_results_that_are_yielded_come_one_by_one() -> None:
    results = yielding(ValueError(SECRET))

    assert next(results) == 1
    with pytest.raises(dg.Failure, match="ValueError"):
        next(results)


def test_the_last_of_several_results_ends_the_generator() -> None:
    @guarded
    def two() -> Iterator[Any]:
        yield from (1, 2)

    assert list(two()) == [1, 2]
