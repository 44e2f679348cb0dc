"""What a person sees of a deployment with two embeddings: Dagster's own pages in a real browser.

Two labels and two models in one code location, as embeddings.example.yaml has them.
"""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import expect

from embed_pipeline.defs.drains import DrainConfig
from embed_pipeline.defs.job_filters import CancelConfig, RetryConfig
from tests.conftest import TestServer
from tests.support.browser import LAST_HOUR, NAMES, DagsterPages, browser, find_chromium
from tests.support.dagster_deployment import Deployment, deployment
from tests.support.leftovers import drop_queues
from tests.support.openai_server import openai_server
from tests.support.project import ROOT, make_project

METRICS = "embed_queue_metrics"
EMBEDDINGS = "entity_embeddings"
BLANK_ONES = """
canvases => canvases.filter(canvas => !canvas.getContext("2d")
    .getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)).length
"""

pytestmark = [
    pytest.mark.skipif(
        find_chromium() is None, reason=f"no browser: none of {', '.join(NAMES)} is on the PATH"
    ),
    # The first test pays for the start of everything.
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """EMBED_PIPELINE_SCREENSHOTS, or a folder that pytest keeps for a while."""
    given = os.environ.get("EMBED_PIPELINE_SCREENSHOTS")
    folder = Path(given).absolute() if given else tmp_path_factory.mktemp("screenshots")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@pytest.fixture(scope="module")
def dagster(
    neo4j_server: TestServer, pictures: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Deployment]:
    """A deployment that has embedded a few entities, has measured that, and has nothing to do."""
    project = make_project(tmp_path_factory.mktemp("project"))
    shutil.copy(ROOT / "embeddings.example.yaml", project.folder / "embeddings.yaml")
    with openai_server() as provider, deployment(project, neo4j_server, provider) as running:
        running.graph.load(12)
        running.graph.run("MATCH (e:Entity) WHERE e.entityType = 'person' SET e:Person")
        running.wait_until_completed(12)
        running.wait_until(lambda: people(running) == [256] * 12, "the people have vectors")
        running.wait_until_idle()
        for asset, figure, value in (
            (METRICS, "completed", 12),
            (EMBEDDINGS, "entities_current", 12),
            (f"people/{METRICS}", "completed", 12),
        ):
            running.wait_until(
                lambda asset=asset, figure=figure, value=value: [
                    point
                    for point in running.ui.materializations(asset, limit=1)
                    if point.metadata.get(figure) == value
                ],
                f"the latest point of {asset} says {figure}: {value}",
            )
        yield running
    drop_queues(neo4j_server, queues=("people",), labels=("Person",))


def people(running: Deployment) -> list[int]:
    """How long the vectors of the people are."""
    rows = running.graph.run("MATCH (p:Person) RETURN size(p.person_embedding) AS size")
    return [row["size"] for row in rows]


@pytest.fixture(scope="module")
def opened(dagster: Deployment, pictures: Path) -> Iterator[DagsterPages]:
    with browser(dagster.dagster.url, pictures) as pages:
        yield pages


@pytest.fixture
def pages(opened: DagsterPages, request: pytest.FixtureRequest) -> Iterator[DagsterPages]:
    """The browser; a picture of where the test has left it is kept."""
    opened.errors.clear()
    yield opened
    opened.keep(request.node.name)


@pytest.mark.proof
def test_m93_two_labels_and_two_models_have_their_own_assets_runs_and_pause(
    dagster: Deployment, pages: DagsterPages
) -> None:
    assert dagster.graph.embedded() == 12
    assert {EMBEDDINGS, f"people/{EMBEDDINGS}"} <= set(dagster.ui.assets())
    drains = dagster.ui.runs("drain_embed_queue")
    assert {run.tags["embed_pipeline/embedding"] for run in drains} == {"default", "people"}
    paused = dagster.project.run("--embedding", "people", "pause")
    assert paused.returncode == 0, paused.stderr
    dagster.graph.load(1, skip=12)
    dagster.graph.run("MATCH (e:Entity) WHERE e.entityType = 'person' SET e:Person")

    dagster.wait_until_completed(13)
    reason = dagster.wait_until(
        lambda: dagster.latest_skip_reason("embed_backlog"), "a tick that says why not"
    )

    assert "people: the queue is paused" in reason
    assert sorted(people(dagster), key=str) == [*[256] * 12, None]
    went_on = dagster.project.run("--embedding", "people", "resume")
    assert went_on.returncode == 0, went_on.stderr
    dagster.wait_until(lambda: people(dagster) == [256] * 13, "the people have vectors")
    dagster.wait_until_idle()
    pages.asset(f"people/{EMBEDDINGS}")
    expect(pages.page.get_by_role("link", name="people", exact=True).first).to_be_visible()
    assert pages.errors == []


def test_every_figure_of_the_queue_is_drawn(dagster: Deployment, pages: DagsterPages) -> None:
    [latest] = dagster.ui.materializations(METRICS, limit=1)
    figures = {name for name, value in latest.metadata.items() if isinstance(value, (int, float))}

    drawings = pages.plots(METRICS)

    assert {"pending", "completed", "throughput_per_minute", "fenced_total"} <= figures
    assert figures <= set(pages.page.inner_text("body").split())
    assert drawings.count() == len(figures)
    assert drawings.evaluate_all(BLANK_ONES) == 0
    assert pages.errors == []


def test_the_chart_of_the_coverage_is_a_picture(pages: DagsterPages) -> None:
    chart = pages.chart(EMBEDDINGS, "coverage by entity type")

    assert chart.evaluate("picture => picture.complete && picture.naturalWidth") == 680
    assert pages.errors == []


def test_the_last_hour_of_the_queue_stands_above_its_figures(pages: DagsterPages) -> None:
    pages.asset(METRICS)
    first = pages.page.locator("table").last.locator("tbody tr").first
    expect(first).to_contain_text("chart")

    chart = pages.chart(METRICS, LAST_HOUR)

    assert chart.evaluate("picture => picture.complete && picture.naturalWidth") == 720
    assert pages.errors == []


@pytest.mark.parametrize(
    ("job", "config", "option"),
    [
        ("drain_embed_queue", DrainConfig, "max_minutes"),
        ("retry_failed_jobs", RetryConfig, "preview"),
        ("cancel_jobs", CancelConfig, "preview"),
    ],
)
def test_the_launchpad_explains_every_option(
    pages: DagsterPages,
    job: str,
    config: type[DrainConfig | RetryConfig | CancelConfig],
    option: str,
) -> None:
    panel = " ".join(pages.launchpad(job, option).inner_text().split())

    for name, field in config.model_fields.items():
        assert f"/* {field.description} */ {name}?:" in panel
    assert "embedding:" in panel
    assert pages.errors == []


def test_a_tick_that_starts_nothing_says_why(pages: DagsterPages) -> None:
    reason = pages.skipped_tick("embed_backlog")

    said = "Skip reason: default: the queue is empty; people: the queue is empty"
    assert reason.inner_text() == said
    assert pages.errors == []


def test_the_lineage_leads_from_the_entities_to_the_index(pages: DagsterPages) -> None:
    pages.lineage(EMBEDDINGS)

    for asset in ("graph_entities", EMBEDDINGS):
        expect(pages.page.get_by_text(asset, exact=True).last).to_be_visible()
    # Dagster shortens long names where many assets have to fit.
    expect(pages.page.get_by_text(re.compile(r"^entity_vect.*_index$")).last).to_be_visible()
    assert pages.errors == []
