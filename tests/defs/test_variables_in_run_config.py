"""A run config cannot print the environment (I19, T3).

Dagster replaces ``{env: NAME}`` by the value of that variable wherever a schema lets it, and a link
in any web page can launch a run. So every place of every run config is tried with a variable.
"""

import json
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest

from tests.defs.conftest import Deployment
from tests.defs.test_job_config import FIELDS
from tests.hostile.security.canaries import Evidence, cells_of, files_of, is_sqlite
from tests.support.run_config_schema import Leaf, leaves, required_beside

CANARIES = {
    # Fits the patterns of ids, names and texts, and would get as far as the database.
    "PLAIN_CANARY": "canary-Zw83kQpLx0Vn",
    # Fits none of them.
    "ODD_CANARY": "canary\tTq41 \"Bn7'\x1bMw2",
}
"""Variables whose names do not look like secrets: no redactor knows them."""
TRACES = {"plain": "Zw83kQpLx0Vn", "odd": "Tq41", "odd's end": "Mw2"}
MEANT = {"preview": False, "all_jobs": True}
"""So that a value that gets through is stored."""


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """An instance with files, as the project's own: runs, event logs and compute logs."""
    (tmp_path / "dagster.yaml").touch()
    with dg.DagsterInstance.from_config(str(tmp_path)) as instance:
        yield instance


def with_variable(job: dg.JobDefinition, leaf: Leaf, variable: str) -> dict[str, object]:
    names = {other.path[-1] for other in leaves(job) if other.path[:-1] == leaf.path[:-1]}
    beside = {name: value for name, value in MEANT.items() if name in names}
    return leaf.holding({"env": variable}, {**beside, **required_beside(job, leaf)})


async def launch(
    deployment: Deployment, job: dg.JobDefinition, config: dict[str, object]
) -> str | None:
    """Why a run fails, or is not even begun; nothing if it does what it was told."""
    try:
        dg.validate_run_config(job, config)
    except dg.DagsterInvalidConfigError as error:
        return "".join(traceback.format_exception(error))
    await deployment.queue.given_jobs(f"entity {uuid.uuid4()}")
    partition = "2026-01-01" if job.partitions_def else None
    result = await deployment.launch(job, config, partition_key=partition)
    failures = [str(event.event_specific_data) for event in result.all_events if event.is_failure]
    return None if result.success else "\n".join(failures)


async def test_no_place_of_any_run_config_takes_a_variable(
    deployment: Deployment,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in CANARIES.items():
        monkeypatch.setenv(name, value)
    evidence, accepted = Evidence(), []

    for job in deployment.defs.resolve_all_job_defs():
        for leaf in leaves(job):
            for variable in CANARIES:
                said = await launch(deployment, job, with_variable(job, leaf, variable))
                evidence.add(f"{job.name} {leaf} {variable}", said or "")
                accepted += [f"{job.name}: {leaf}"] if said is None else []
    evidence.add("output", capfd.readouterr()._asdict())
    evidence.add("log", caplog.text)
    await collect(deployment, tmp_path, evidence)

    assert evidence.places_of(TRACES) == []
    assert accepted == []


def test_no_schema_has_a_place_for_a_variable(deployment: Deployment) -> None:
    places = {
        f"{job.name}: {leaf}"
        for job in deployment.defs.resolve_all_job_defs()
        for leaf in leaves(job)
        if leaf.kind not in {"SCALAR", "ENUM", "ARRAY"}
    }

    assert places == set()


def test_every_field_of_every_job_is_tried(deployment: Deployment) -> None:
    found = {
        job.name: {leaf.path[3] for leaf in leaves(job) if leaf.path[0] == "ops"}
        for job in deployment.defs.resolve_all_job_defs()
    }

    assert {job: fields for job, fields in found.items() if fields} == {
        job: fields.keys() for job, fields in FIELDS.items() if fields
    }


async def test_the_search_sees_what_is_written(deployment: Deployment, tmp_path: Path) -> None:
    job, reason = deployment.defs.resolve_job_def("cancel_jobs"), CANARIES["PLAIN_CANARY"]
    config = deployment.run_config("cancel_jobs", {**MEANT, "reason": reason})

    assert await launch(deployment, job, config) is None
    evidence = Evidence()
    await collect(deployment, tmp_path, evidence)

    assert evidence.holds(reason, where="graph")
    assert evidence.holds(reason, where="sqlite runs.db")
    assert evidence.holds("1 jobs cancelled", where="sqlite")
    assert evidence.holds("1 jobs cancelled", where="file")


async def collect(deployment: Deployment, folder: Path, evidence: Evidence) -> None:
    nodes = await deployment.queue.run("MATCH (n) RETURN labels(n) AS labels, n {.*} AS n")
    evidence.add("graph", json.dumps(nodes, default=str, ensure_ascii=False))
    for path in files_of(folder):
        evidence.add(f"file {path.name}", path.read_bytes().decode("utf-8", errors="replace"))
        if is_sqlite(path):
            for table, cells in cells_of(path):
                evidence.add(f"sqlite {path.name} {table}", cells)
