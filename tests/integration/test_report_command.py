"""``embed-pipeline report`` on the history of a real Dagster instance and a real queue."""

import asyncio
import re
import stat
from datetime import UTC, datetime
from pathlib import Path

import dagster as dg
import pytest

from embed_pipeline.cli.history import report
from embed_pipeline.domain.errors import ConfigurationError, HistoryError
from embed_pipeline.domain.figures import queue_figures
from embed_pipeline.domain.job import JobStatus
from tests.conftest import TestServer
from tests.support.project import Project
from tests.support.queue_harness import DIMENSIONS, MODEL, Neo4jUnderTest

HOSTILE = "<script>alert(1)</script>"


@pytest.fixture
def project(neo4j_server: TestServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    """The current folder; its settings lead to the test's Neo4j."""
    made = Project(
        tmp_path,
        {
            **neo4j_server.environment,
            "EMBED_JOB_RETENTION_DAYS": "14",
            "EMBEDDING_PROVIDER": "openai",
            "EMBEDDING_MODEL": MODEL,
            "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
            "OPENAI_API_KEY": "sk-not-a-key",
        },
    )
    for name, value in made.environment.items():
        monkeypatch.setenv(name, value)
    return made


@pytest.fixture
def dagster_home(tmp_path: Path) -> Path:
    """The home of another deployment."""
    home = tmp_path / "elsewhere"
    home.mkdir()
    return home


async def remember(home: Path, queue: Neo4jUnderTest) -> None:
    """Add a reading and a drain to the history, as the sensors do."""
    figures = queue_figures(await queue.queue.metrics.read())
    drain = {
        "drain_run_id": "run-1",
        "drain_completed": 41,
        "drain_seconds": 10.0,
        "drain_seconds_waiting": 1.0,
        "drain_ending": HOSTILE,
    }

    def write() -> None:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            for asset, values in (("embed_queue_metrics", figures), ("embed_drains", drain)):
                event = dg.AssetMaterialization(asset, metadata=dict(values))
                instance.report_runless_asset_event(event)

    await asyncio.to_thread(write)


async def test_the_page_shows_what_dagster_and_the_queue_remember(
    queue: Neo4jUnderTest, project: Project, dagster_home: Path
) -> None:
    queue.clock.now = datetime.now(UTC)
    await queue.in_state("ada", JobStatus.FAILED)
    await queue.given_jobs("bob", "eve")
    await remember(dagster_home, queue)
    await remember(dagster_home, queue)
    (project.folder / "page.html").write_text("an older one, open to all")

    said = await asyncio.to_thread(
        project.run, "report", "--since", "1d", "--dagster-home", "elsewhere", "--out", "page.html"
    )

    assert (said.returncode, said.stdout) == (0, "✓ 2 readings, 2 drains: page.html")
    out = project.folder / "page.html"
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    page = out.read_text()
    assert "Yes, but too many jobs have failed: 0 jobs completed, 2 waiting now." in page
    assert "1 job, by 1 kind of error." in page
    assert page.count('data-name="Completed">41<') == 2
    assert "<script" not in page
    assert re.search("&lt;script&gt;alert", page)


async def test_a_time_without_readings_gives_a_page_that_says_so(
    queue: Neo4jUnderTest, project: Project, dagster_home: Path
) -> None:
    await remember(dagster_home, queue)
    start = datetime.now(UTC).isoformat()

    out = project.folder / "report.html"

    await asyncio.to_thread(report, since=start, out=out, dagster_home=dagster_home)

    assert "There are no readings in this time." in out.read_text()


async def test_without_any_history_the_command_says_where_it_looked(
    queue: Neo4jUnderTest, project: Project
) -> None:
    out = project.folder / "report.html"

    with pytest.raises(HistoryError, match=r"holds no history of Dagster; start Dagster"):
        await asyncio.to_thread(report, since="7d", out=out, dagster_home=None)

    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"since": "yesterday"}, "--since: 'yesterday' is no time; give 90m, 36h, 7d, 4w, or"),
        ({"since": ""}, "--since: '' is no time; give"),
        ({"since": "0d"}, "--since: '0d' is not in the past; give"),
        ({"since": "9999-01-01"}, "--since: '9999-01-01' is not in the past; give"),
        ({"since": "99999999d"}, "--since: '99999999d' is "),
        ({"since": "9" * 30 + "d"}, "--since: '"),
        ({"out": Path("no/report.html")}, "--out: there is no folder no; make it first"),
        ({"out": Path("x" * 300)}, "--out: cannot write xxx"),
        ({"out": Path()}, "--out: . is a folder; name a file, such as report.html"),
        ({"dagster_home": Path("no")}, "--dagster-home: no holds no history of Dagster; name the"),
    ],
)
def test_a_wrong_option_is_named_with_its_value_and_what_is_allowed(
    project: Project, options: dict, message: str
) -> None:
    given = {"since": "7d", "out": Path("report.html"), "dagster_home": None} | options

    with pytest.raises(ConfigurationError) as caught:
        report(**given)

    assert str(caught.value).startswith(message)


async def test_a_file_that_cannot_be_written_is_named(
    queue: Neo4jUnderTest, project: Project, dagster_home: Path
) -> None:
    await remember(dagster_home, queue)
    out = project.folder / "report.html"
    out.symlink_to(project.folder / "no" / "report.html")

    with pytest.raises(ConfigurationError, match=r"--out: cannot write .*/report.html: No such"):
        await asyncio.to_thread(report, since="7d", out=out, dagster_home=dagster_home)


def test_a_wrong_option_is_one_line_and_exit_code_2(project: Project) -> None:
    said = project.run("report", "--since", "soon")

    assert said.returncode == 2
    assert said.stderr.startswith("✗ --since: 'soon' is no time; give 90m, 36h, 7d, 4w, or a time")
    assert "Traceback" not in said.stderr
