"""Make the pictures of the docs again, from a real deployment: python -m scripts.screenshots.

Needs a Chromium on the PATH, takes some minutes, and touches no data of yours.
"""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from starlette.responses import JSONResponse, Response

from embed_pipeline.devserver.temporary import temporary_server
from tests.conftest import TestServer
from tests.support.browser import LAST_HOUR, DagsterPages, browser, find_chromium
from tests.support.dagster_deployment import Deployment, deployment
from tests.support.openai_server import OpenAIServer, failure, openai_server, vectors
from tests.support.project import ROOT, make_project

PICTURES = ROOT / "docs" / "images"
METRICS = "embed_queue_metrics"
REFUSED = ("Name: Prolog", "Name: Erlang", "Name: Haskell", "Name: COBOL")
"""The provider refuses texts that begin with these, so that there are failures to look at."""
STEP = 40
STEPS = 6
BUDGET = "EMBED_BUDGET_TOKENS_PER_DAY"
FILLED = "MATCH (e:Entity) WHERE any(k IN keys(e) WHERE k CONTAINS '__other') RETURN e.name"


def refuse(body: dict) -> Response | None:
    """Answer as OpenAI does when one of the texts is not to its liking."""
    if any(text.startswith(REFUSED) for text in body["input"]):
        return failure(400, "Invalid input", "invalid_input")
    return None


def charge(body: dict) -> Response:
    """Answer, and charge about as many tokens as OpenAI would."""
    answer = json.loads(bytes(vectors(body).body))
    tokens = sum(len(text) // 4 for text in body["input"])
    return JSONResponse({**answer, "usage": {"prompt_tokens": tokens, "total_tokens": tokens}})


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


def cut_over(running: Deployment) -> None:
    """Fill another model beside the live one; the refused texts keep a gate red."""
    running.work(
        "cutover_start",
        {
            "ops": {
                "start_candidate": {
                    "config": {"preview": False, "model": "other-model", "provider": "openai"}
                }
            }
        },
    )
    running.wait_until(
        lambda: len(running.graph.run(FILLED)) > STEP * STEPS - 2 * len(REFUSED),
        "the candidate is filled",
    )
    running.wait_until_idle()
    running.work("cutover_status")


def spend(running: Deployment) -> None:
    """Let the budget of the day be spent, and raise it when the queue has waited for a while."""
    for step in range(STEPS):
        reached(running, step + 1)
        running.graph.load(STEP, skip=step * STEP)
    running.wait_until(lambda: "budget" in running.latest_skip_reason("embed_backlog"), "it waits")
    reached(running, STEPS + 6)


def reached(running: Deployment, readings: int) -> None:
    """Wait until there are so many readings of the figures."""
    running.wait_until(
        lambda: len(running.ui.materializations(METRICS)) >= readings, "the metrics have gone on"
    )


def take(pages: DagsterPages, shots: dict[str, Callable[[], object]]) -> None:
    """Take the pictures."""
    for name, show in shots.items():
        show()
        # Drawings and colours come in late; a picture is closed by the next reading.
        is_open = pages.page.get_by_role("dialog").count() > 0
        pages.page.wait_for_timeout(1_000 if is_open else 6_000)
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


def show_a_day(folder: Path, neo4j: TestServer, provider: OpenAIServer) -> None:
    """What a person looks at."""
    provider.answer_with = refuse
    with deployment(make_project(folder), neo4j, provider) as running:
        drain = live(running)
        with browser(running.dagster.url, PICTURES) as pages:
            take(
                pages,
                {
                    "dagster-ui": lambda: pages.chart(METRICS, LAST_HOUR),
                    "queue-metrics": lambda: show_plots_around(pages, "completed_total"),
                    "coverage": lambda: pages.chart("entity_embeddings", "coverage by entity type"),
                    "checks": lambda: pages.checks(METRICS, "few_failed_jobs"),
                    "launchpad": lambda: pages.launchpad("retry_failed_jobs", "preview"),
                    "drain-run": lambda: show_run(pages, drain),
                    "tick": lambda: pages.skipped_tick("embed_backlog"),
                    "lineage": lambda: pages.lineage("entity_embeddings"),
                },
            )
            cut_over(running)
            take(pages, {"gates": lambda: pages.checks("embed_cutover", "cutover_coverage")})


def show_a_budget(folder: Path, neo4j: TestServer, provider: OpenAIServer) -> None:
    """How a queue waits for its budget, and goes on when it is raised."""
    provider.answer_with = charge
    with deployment(make_project(folder), neo4j, provider, **{BUDGET: "5000"}) as running:
        spend(running)
        with browser(running.dagster.url, PICTURES) as pages:
            take(pages, {"budget-tick": lambda: pages.skipped_tick("embed_backlog")})
        running.stop()
        running.start(**{BUDGET: "1000000"})
        running.wait_until_completed(STEP * STEPS)
        reached(running, len(running.ui.materializations(METRICS)) + 6)
        with browser(running.dagster.url, PICTURES) as pages:
            take(pages, {"budget": lambda: pages.chart(METRICS, LAST_HOUR)})


def main() -> None:
    """Start everything, let it work, look at it."""
    if find_chromium() is None:
        raise SystemExit("✗ There is no Chromium on the PATH; install one, then try again.")
    with (
        tempfile.TemporaryDirectory() as day,
        tempfile.TemporaryDirectory() as budget,
        temporary_server() as server,
        openai_server() as provider,
    ):
        neo4j = TestServer(server.uri, server.username, server.password)
        show_a_day(Path(day), neo4j, provider)
        show_a_budget(Path(budget), neo4j, provider)


if __name__ == "__main__":
    main()
