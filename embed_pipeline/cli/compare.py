"""``embed-pipeline compare``: which model is worth its price, on the user's own graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from embed_pipeline.cli.base import (
    AsJson,
    Yes,
    complaints,
    confirm,
    console,
    print_json,
    safe,
    say_waiting,
    show,
    table,
    with_queue,
)
from embed_pipeline.domain.budget import Unit

if TYPE_CHECKING:
    from embed_pipeline.domain.comparison import Answered, Standing
    from embed_pipeline.domain.quality import Auc
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue


def compare(
    models: Annotated[
        str,
        typer.Option(
            metavar="A,B,C",
            help="Models or providers: local,text-embedding-3-small,text-embedding-3-small@512, "
            "where 512 is a length.",
        ),
    ],
    templates: Annotated[
        list[str] | None,
        typer.Option(
            metavar="TEMPLATE",
            help="A text to compare, '{name}: {observations}'; may be repeated. [the one set]",
        ),
    ] = None,
    picture: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the result: an SVG file.")
    ] = None,
    yes: Yes = False,
    json: AsJson = False,
) -> None:
    """Embed a sample of this graph with several models, and rank them by quality and money.

    Judged by 400 edges, as many pairs without one, and questions made from relations and from
    sentences. Says first what that costs; stores no vector.
    """
    from embed_pipeline.domain.comparison import choice
    from embed_pipeline.operations.comparing import compare as run, prepare
    from embed_pipeline.operations.planning import question_about_cost

    named = [name.strip() for name in models.split(",") if name.strip()]

    async def work(queue: Queue, settings: Settings) -> list[Standing]:
        made = await prepare(queue, settings, models=named, templates=templates or ())
        exam = made.exam
        complaints.print(
            f"▸ {len(exam.edges)} edges, {len(exam.relations)} questions from relations, "
            f"{len(exam.sentences)} from sentences; {len(made.entrants)} contenders, "
            f"{made.tokens:,} tokens, {Unit.USD.shown(made.usd)}",
            soft_wrap=True,
        )
        what = f"Comparing {len(made.entrants)} contenders"
        if question := question_about_cost(
            what, usd=made.usd, tokens=made.tokens, settings=settings
        ):
            confirm(question, yes=yes)
        with complaints.status("Embedding the sample") as spinner:
            return await run(
                queue,
                made,
                on_wait=say_waiting,
                on_next=lambda contender: spinner.update(f"Embedding with {safe(contender)}"),
            )

    found = with_queue(work)
    best = choice(found)
    if picture is not None:
        from embed_pipeline.report.comparison import drawn

        picture.write_text(drawn(found, best), encoding="utf-8")
    if json:
        print_json({"standings": [_plain(each) for each in found], "choice": str(best.contender)})
        return
    rows = table("MODEL", "QUALITY", "EDGES", "RELATIONS", "SENTENCES", "WHOLE GRAPH")
    for each in found:
        rows.add_row(
            safe(each.contender),
            f"{each.quality:.3f} ±{each.margin:.3f}",
            _shown(each.edges),
            _shown_with_recall(each.relations),
            _shown_with_recall(each.sentences),
            "price unknown" if each.usd is None else Unit.USD.shown(each.usd),
        )
    show(rows)
    console.print(
        f"✓ {safe(best.contender)}: the cheapest that is not clearly worse than the best. "
        f"'embed-pipeline cutover start' changes to it without a gap",
        soft_wrap=True,
    )


def _shown(auc: Auc | None) -> str:
    return "–" if auc is None else f"{auc.value:.3f}"


def _shown_with_recall(answered: Answered | None) -> str:
    return "–" if answered is None else f"{answered.auc.value:.3f} ({answered.recall:.0%} in five)"


def _plain(standing: Standing) -> dict[str, Any]:
    from embed_pipeline.cli.base import as_plain

    own = {"name": str(standing.contender), "quality": standing.quality, "margin": standing.margin}
    return own | {"usd": standing.usd} | as_plain(standing)
