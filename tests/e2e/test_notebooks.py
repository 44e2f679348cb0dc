"""The notebooks: committed clean, and run from top to bottom, with a history and without."""

from collections.abc import Iterator
from datetime import UTC, datetime, time, timedelta
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from embed_pipeline.defs.drains import DrainConfig
from embed_pipeline.domain.breaker import Breaker
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.figures import queue_figures
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.metrics import COUNTERS, QueueMetrics, QueueState
from embed_pipeline.domain.quality import Auc, Quality
from embed_pipeline.domain.quality_check import overall_figures
from embed_pipeline.history.archive import Archive
from embed_pipeline.history.frames import frame_of
from embed_pipeline.history.records import Record
from embed_pipeline.history.tables import DRAINS, METRICS, Table
from embed_pipeline.settings import load_settings
from embed_pipeline.worker.report import DrainReport, Ending
from tests.conftest import TestServer
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import ROOT, make_project
from tests.support.queue_harness import MODEL, Neo4jUnderTest

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
LONGEST_CELL = 12
YESTERDAY = datetime.combine(datetime.now(UTC), time(), UTC) - timedelta(days=1)
READINGS = 24 * 12
PLOTS = {"capacity": 3, "failure_review": 2, "quality": 4, "queue_health": 6}
MEASURED = Quality("model", Auc(0.85, 0.82, 0.88, edges=400), words=0.7)
NOTHING_YET = "holds no history of Dagster; start Dagster there once"
CLOSED_PORT = "bolt://127.0.0.1:1"


def name_of(path: Path) -> str:
    return path.stem


def figures(number: int) -> dict[str, Any]:
    """One of the readings of a day on which a backlog is worked off, and some jobs fail."""
    pending, failed = max(0, 20_000 - 100 * number), number // 50
    told = queue_figures(
        QueueMetrics(
            at=YESTERDAY + number * timedelta(minutes=5),
            counts={
                **dict.fromkeys(JobStatus, 0),
                JobStatus.PENDING: pending,
                JobStatus.COMPLETED: 20_000 - pending,
                JobStatus.FAILED: failed,
            },
            ready=pending,
            delayed=failed,
            due_retries=0,
            suspects=0,
            oldest_pending=timedelta(seconds=pending),
            expired_leases=0,
            oldest_expired=None,
            without_lock=0,
            window=timedelta(minutes=5),
            completed_in_window=100,
            failed_in_window=number % 50 == 0,
            cancelled_in_window=0,
            attempts={1: 100},
            categories=dict.fromkeys(ErrorCategory, failed),
            counters=dict.fromkeys(COUNTERS, number),
            state=QueueState(Breaker()),
        )
    )
    return told | overall_figures(MEASURED)


def drain(number: int) -> dict[str, Any]:
    """What one of the drains of that day told Dagster."""
    report = DrainReport(
        "run/host/1",
        MODEL,
        completed=2_000 + number,
        requests=40,
        seconds=90.0 + number,
        seconds_waiting=45.0,
        ending=Ending.EMPTY,
    )
    told = {f"drain_{name}": value for name, value in report.as_dict().items() if value is not None}
    return {**told, "drain_run_id": f"run-{number}", "drain_config": DrainConfig().model_dump()}


def records(table: Table, values: list[dict[str, Any]]) -> Iterator[Record]:
    for number, told in enumerate(values):
        row = table.row(told)
        assert row is not None
        yield Record(YESTERDAY + number * timedelta(minutes=5), row)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project as cloned, nothing started yet; the notebooks' own folder in it."""
    make_project(tmp_path)
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("NEO4J_URI", CLOSED_PORT)
    monkeypatch.setenv("NEO4J_PASSWORD", "opens nothing")
    folder = tmp_path / "notebooks"
    folder.mkdir()
    return folder


@pytest.fixture
async def folder_with_history(
    folder: Path,
    queue: Neo4jUnderTest,
    neo4j_server: TestServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Path:
    """The same a day later: exported history, and failed jobs in Neo4j."""
    archive = Archive.at(str(folder.parent / "exported"))
    readings = [figures(number) for number in range(READINGS)]
    archive.write("queue_metrics", YESTERDAY.date(), frame_of(records(METRICS, readings)))
    drains = [drain(number) for number in range(9)]
    archive.write("drains", YESTERDAY.date(), frame_of(records(DRAINS, drains)))
    monkeypatch.setenv("EMBED_HISTORY_PATH", str(archive.root))
    for name, value in neo4j_server.environment.items():
        monkeypatch.setenv(name, value)
    await queue.run(
        "UNWIND range(0, 39) AS n CREATE (:Entity {name: 'v' + n, entityType: 't', version: 1,"
        " observations: ['text'], embedding: [1.0, n / 40.0], embedding_model: $model,"
        " embedding_hash: 'h' + n})",
        model=load_settings().model,
    )
    await queue.run(
        "UNWIND range(0, 38) AS n MATCH (a:Entity {name: 'v' + n})"
        " MATCH (b:Entity {name: 'v' + (n + 1)}) CREATE (a)-[:NEAR]->(b)"
    )
    messages = ("400 too long: 9120 tokens", "400 too long: 8200 tokens", "422 not a text")
    leased = await queue.leased("ada", "grace", "alan")
    for item, message in zip(leased, messages, strict=True):
        await queue.fail(item.lease, category=ErrorCategory.PERMANENT, message=message)
    return folder


async def executed(path: Path, folder: Path) -> nbformat.NotebookNode:
    """Run a notebook as somebody would who opened it in that folder."""
    notebook = nbformat.read(path, as_version=4)
    place = {"metadata": {"path": str(folder)}}
    await NotebookClient(notebook, timeout=PATIENCE_SECONDS, resources=place).async_execute()
    return notebook


def outputs(notebook: nbformat.NotebookNode) -> list[Any]:
    return [o for cell in notebook.cells if cell.cell_type == "code" for o in cell.outputs]


def text(notebook: nbformat.NotebookNode) -> str:
    """Everything that can be read below the cells."""
    shown = outputs(notebook)
    return "\n".join(o.get("text") or o.get("data", {}).get("text/plain", "") for o in shown)


def plots(notebook: nbformat.NotebookNode) -> int:
    return sum("image/png" in output.get("data", {}) for output in outputs(notebook))


def test_the_notebooks_are_those_that_are_described() -> None:
    described = (ROOT / "notebooks" / "README.md").read_text(encoding="utf-8")

    assert {path.stem for path in NOTEBOOKS} == set(PLOTS)
    assert all(path.name in described for path in NOTEBOOKS)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=name_of)
class TestCommitted:
    def test_is_valid(self, path: Path) -> None:
        nbformat.validate(nbformat.read(path, as_version=4))

    def test_has_no_output_and_was_never_run(self, path: Path) -> None:
        cells = nbformat.read(path, as_version=4).cells
        code = [cell for cell in cells if cell.cell_type == "code"]

        assert [cell.outputs for cell in code if cell.outputs] == []
        assert [cell.execution_count for cell in code if cell.execution_count] == []

    def test_says_a_sentence_before_each_cell_of_code(self, path: Path) -> None:
        kinds = [cell.cell_type for cell in nbformat.read(path, as_version=4).cells]

        assert kinds == ["markdown", "code"] * (len(kinds) // 2)

    def test_holds_no_logic(self, path: Path) -> None:
        sources = [cell.source for cell in nbformat.read(path, as_version=4).cells]

        assert [s for s in sources if len(s.splitlines()) > LONGEST_CELL] == []
        assert [s for s in sources if s.startswith(("def ", "class ", "for ", "MATCH "))] == []


async def test_run_on_a_history(folder_with_history: Path) -> None:
    done = {path.stem: await executed(path, folder_with_history) for path in NOTEBOOKS}
    said = {name: text(notebook) for name, notebook in done.items()}

    assert {name: plots(notebook) for name, notebook in done.items()} == PLOTS
    assert not [name for name in said if "Nothing to read" in said[name]]
    assert "<n> too long: <n> tokens      2" in said["failure_review"]
    assert 'categories: ["PERMANENT"]' in said["failure_review"]
    assert "jobs_per_request=50.1" in said["capacity"]
    assert "predicted_seconds" in said["capacity"]
    assert "NEAR" in said["quality"]
    assert "pairs without an edge" in said["quality"]


@pytest.mark.proof
async def test_run_where_there_is_no_history_yet(folder: Path) -> None:
    done = {path.stem: await executed(path, folder) for path in NOTEBOOKS}
    said = {name: text(notebook) for name, notebook in done.items()}

    # The capacity of a queue can be planned before there is one.
    assert {name for name, notebook in done.items() if plots(notebook)} == {"capacity"}
    assert [name for name in said if NOTHING_YET not in said[name]] == []
    assert "Nothing to read: Cannot reach Neo4j at 127.0.0.1:1;" in said["failure_review"]
    assert "Nothing to retry." in said["failure_review"]
    assert "Cosines: nothing to draw yet." in said["quality"]
    assert "nothing to draw yet" in said["queue_health"]
