"""The code location: it loads, or says in one message why not."""

import importlib
import pkgutil
from pathlib import Path

import dagster as dg
import pytest

import embed_pipeline.defs as defs_folder
from tests.project import BIN, Project, make_project

DEFINITIONS = (
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


def test_the_list_of_definitions_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    listed = importlib.import_module("embed_pipeline.definitions").defs

    found = [
        thing
        for module in pkgutil.iter_modules(defs_folder.__path__, "embed_pipeline.defs.")
        for thing in vars(importlib.import_module(module.name)).values()
        if isinstance(thing, DEFINITIONS)
    ]

    assert found
    everything = [*listed.assets, *listed.jobs, *(listed.sensors or []), *(listed.schedules or [])]
    assert [thing for thing in found if thing not in everything] == []
