"""Make the pictures of the docs again, from a real deployment: python -m scripts.screenshots.

Needs a Chromium on the PATH, takes some minutes, and touches no data of yours.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path

from starlette.responses import Response

from embed_pipeline.devserver.temporary import temporary_server
from tests.conftest import TestServer
from tests.support.browser import LAST_HOUR, DagsterPages, browser, find_chromium
from tests.support.dagster_deployment import Deployment, deployment
from tests.support.openai_server import failure, openai_server
from tests.support.project import ROOT, make_project

PICTURES = ROOT / "docs" / "images"
METRICS = "embed_queue_metrics"
REFUSED = ("Name: Prolog", "Name: Erlang", "Name: Haskell", "Name: COBOL")
"""The provider refuses texts that begin with these, so that there are failures to look at."""
STEP = 40
STEPS = 6


def refuse(body: dict) -> Response | None:
    """Answer as OpenAI does when one of the texts is not to its liking."""
    if any(text.startswith(REFUSED) for text in body["input"]):
        return failure(400, "Invalid input", "invalid_input")
    return None


def live(running: Deployment) -> str:
    """Let a graph grow in steps, as its clients would; return the run of a drain."""
    for step in range(STEPS):
        before = len(running.ui.materializations(METRICS))
        running.graph.load(STEP, skip=step * STEP)
        running.wait_until(
            lambda before=before: len(running.ui.materializations(METRICS)) > before + 1,
            "the metrics have gone on",
        )
    running.wait_until_idle()
    running.wait_until(
        lambda: running.ui.checks(METRICS)["few_failed_jobs"].passed is False,
        "the check has noticed the failures",
    )
    drains = running.ui.runs("drain_embed_queue", statuses=["SUCCESS"])
    return drains[-1].id


def take(pages: DagsterPages, drain: str) -> None:
    """Take all pictures."""
    shots: dict[str, Callable[[], object]] = {
        "dagster-ui": lambda: pages.chart(METRICS, LAST_HOUR),
        "queue-metrics": lambda: show_plots_around(pages, "completed_total"),
        "coverage": lambda: pages.chart("entity_embeddings", "coverage by entity type"),
        "checks": lambda: pages.checks(METRICS, "few_failed_jobs"),
        "launchpad": lambda: pages.launchpad("retry_failed_jobs", "preview"),
        "drain-run": lambda: show_run(pages, drain),
        "tick": lambda: pages.skipped_tick("embed_backlog"),
        "lineage": lambda: pages.lineage("entity_embeddings"),
    }
    for name, show in shots.items():
        show()
        # Drawings, dialogs and colours come in late.
        pages.page.wait_for_timeout(6_000)
        picture = pages.keep(name)
        print(f"▸ {picture.relative_to(ROOT)}, {picture.stat().st_size / 1000:.0f} kB")


def show_plots_around(pages: DagsterPages, figure: str) -> None:
    """Bring the plot of a figure into the middle."""
    pages.plots(METRICS)
    title = pages.page.get_by_text(figure, exact=True)
    title.evaluate("title => title.scrollIntoView({block: 'center'})")


def show_run(pages: DagsterPages, drain: str) -> None:
    """Leave out the events that are Dagster's own."""
    pages.run(drain)
    pages.page.get_by_placeholder("Filter…").fill("step:drain")


def main() -> None:
    """Start everything, let it work, look at it."""
    if find_chromium() is None:
        raise SystemExit("✗ There is no Chromium on the PATH; install one, then try again.")
    with (
        tempfile.TemporaryDirectory() as folder,
        temporary_server() as server,
        openai_server() as provider,
    ):
        provider.answer_with = refuse
        neo4j = TestServer(server.uri, server.username, server.password)
        project = make_project(Path(folder))
        with deployment(project, neo4j, provider) as running:
            drain = live(running)
            with browser(running.dagster.url, PICTURES) as pages:
                take(pages, drain)


if __name__ == "__main__":
    main()
