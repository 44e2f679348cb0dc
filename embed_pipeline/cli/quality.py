"""``embed-pipeline quality``: whether the stored vectors are any good."""

from __future__ import annotations

from typing import TYPE_CHECKING

from embed_pipeline.cli.base import AsJson, as_plain, print_json, safe, show, table, with_queue

if TYPE_CHECKING:
    from embed_pipeline.domain.quality import Quality
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue


def quality(json: AsJson = False) -> None:
    """Say whether vectors follow the graph: are joined entities nearer than others?

    Looks at 400 edges and as many pairs without one, and embeds 20 texts again; keeps the result.
    """
    from embed_pipeline.domain.quality_check import follows_the_graph
    from embed_pipeline.operations.grading import grade

    async def work(queue: Queue, settings: Settings) -> Quality:
        return await grade(queue, settings)

    found = with_queue(work, for_vectors=True)
    verdict = follows_the_graph(found)
    if json:
        print_json(as_plain(found) | {"passed": verdict.passed, "verdict": verdict.message})
        return
    rows = table()
    rows.add_row("✓" if verdict.passed else "[bold red]✗", safe(verdict.message))
    for name, value in verdict.figures.items():
        rows.add_row(safe(name), f"{value:.3f}")
    show(rows)
