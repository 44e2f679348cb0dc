"""The code location: it loads, or says in one message why not."""

import importlib
import inspect
import pkgutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import dagster as dg
import pytest

import embed_pipeline.defs as defs_folder
from embed_pipeline.defs.border import Job
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from tests.defs.conftest import fresh_definitions
from tests.support.project import BIN, Project, make_project
from tests.support.sites import site_of

SITE = site_of()
GIVEN = {"queue": DEFAULT_QUEUE, "site": SITE, "settings": SITE.first}
"""What the functions take that make definitions."""
DEFINITIONS = (
    dg.AssetChecksDefinition,
    dg.AssetsDefinition,
    dg.AssetSpec,
    dg.JobDefinition,
    dg.ScheduleDefinition,
    dg.SensorDefinition,
)


@pytest.fixture
def project(tmp_path: Path) -> Project:
    return make_project(tmp_path)


def test_dg_check_defs_passes(project: Project) -> None:
    result = project.run_program(str(BIN / "dg"), "check", "defs")

    assert result.returncode == 0, result.stdout + result.stderr


def test_m23_the_code_location_refuses_a_wrong_retention(project: Project) -> None:
    result = project.run_program(str(BIN / "dg"), "check", "defs", EMBED_JOB_RETENTION_DAYS="31")

    assert result.returncode != 0
    said = result.stdout + result.stderr
    assert "EMBED_JOB_RETENTION_DAYS is '31'; it must be a whole number of days" in said
    assert "from 7 to 30" in said


@pytest.fixture
def listed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Everything that definitions.py hands to Dagster."""
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    defs = fresh_definitions()
    kinds = (defs.assets, defs.asset_checks, defs.jobs, defs.schedules, defs.sensors)
    return [thing for kind in kinds for thing in kind or ()]


def modules() -> list[ModuleType]:
    found = pkgutil.iter_modules(defs_folder.__path__, "embed_pipeline.defs.")
    return [importlib.import_module(module.name) for module in found]


def made_by_settings() -> Iterator[Any]:
    """What functions make, because the settings decide about it."""
    for module in modules():
        for _, function in inspect.getmembers(module, inspect.isfunction):
            is_maker = inspect.signature(function).return_annotation in DEFINITIONS
            if is_maker and function.__module__ == module.__name__:
                names = inspect.signature(function).parameters
                yield function(*(GIVEN[name] for name in names))


def name_of(thing: Any) -> tuple[type, str]:
    if isinstance(thing, dg.AssetChecksDefinition):
        return dg.AssetChecksDefinition, thing.node_def.name
    if isinstance(thing, (dg.AssetSpec, dg.AssetsDefinition)):
        return dg.AssetsDefinition, thing.key.to_user_string()
    return type(thing), thing.name


def test_the_list_of_definitions_is_complete(listed: list[Any]) -> None:
    found = {
        thing.name
        for module in modules()
        for thing in vars(module).values()
        if isinstance(thing, Job)
    }

    assert found
    assert found == {thing.name for thing in listed if isinstance(thing, dg.JobDefinition)}


def test_nothing_is_defined_before_the_settings_are_known() -> None:
    made = [
        thing
        for module in modules()
        for thing in vars(module).values()
        if isinstance(thing, DEFINITIONS)
    ]

    assert made == []


def test_what_the_settings_decide_about_is_in_the_list_too(listed: list[Any]) -> None:
    made = [name_of(thing) for thing in made_by_settings()]

    assert {name for _, name in made} == {
        "cutover_gates",
        "daily_history",
        "daily_quality",
        "embed_backlog",
        "embed_batches",
        "embed_cutover",
        "embed_drains",
        "embed_health",
        "embed_queue_metrics",
        "embedding_plan",
        "embedding_quality",
        "hourly_retry",
        "nightly_cleanup",
        "nightly_pruning",
        "operator_actions",
        "queue_metrics",
        "queue_metrics_history",
        "reconcile_entities",
        "stale_leases",
        "upstream_changes",
    }
    names = [name_of(thing) for thing in listed]
    assert [name for name in made if name not in names] == []


def test_a_further_code_server_has_drains_and_nothing_that_must_be_there_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBED_CODE_SERVER", "drains")

    defs = fresh_definitions()

    assert [job.name for job in defs.jobs or ()] == ["drain_embed_queue", "prune_old_runs"]
    # The logs of its drains are on its machine.
    assert [schedule.name for schedule in defs.schedules or ()] == ["nightly_pruning"]
    assert [sensor.name for sensor in defs.sensors or ()] == ["embed_backlog"]
    assert not [*(defs.assets or ()), *(defs.asset_checks or ())]


def test_a_second_queue_shares_no_asset_with_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    first = fresh_definitions().resolve_asset_graph()
    monkeypatch.setenv("EMBED_QUEUE", "acme")

    second = fresh_definitions().resolve_asset_graph()

    def names(keys: Iterable[dg.AssetKey]) -> set[str]:
        return {key.to_user_string() for key in keys}

    assert names(second.get_all_asset_keys()) == {
        f"acme/{name}" for name in names(first.get_all_asset_keys())
    }
    assert {check.asset_key.path[0] for check in second.asset_check_keys} == {"acme"}
    assert len(second.asset_check_keys) == len(first.asset_check_keys) > 0


def test_whatever_runs_by_itself_says_what_for(listed: list[Any]) -> None:
    by_itself = [
        thing for thing in listed if isinstance(thing, (dg.ScheduleDefinition, dg.SensorDefinition))
    ]

    assert by_itself
    assert [thing.name for thing in by_itself if not thing.description] == []
