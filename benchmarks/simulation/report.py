"""The table of all results."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from benchmarks.plan import FULL
from benchmarks.simulation import compare
from benchmarks.simulation.costs import Costs
from benchmarks.simulation.run import Result
from benchmarks.simulation.studies import HUNDRED_MILLION, Recovery

FILE: Final = Path(__file__).parents[2] / "docs" / "scaling-results.md"
HOUR: Final = 3600
MINUTE: Final = 60
HEAD: Final = (
    "jobs/s",
    "100 M jobs",
    "mutex needed (held)",
    "a lease waits, median / 99 %",
    "timeouts / drains given up, per minute",
    "cores of Neo4j",
    "first bottleneck",
)


def write(
    costs: Costs,
    studies: Mapping[str, Sequence[Result]],
    changed: Mapping[str, Result],
    deaths: Mapping[str, Sequence[Recovery]],
) -> None:
    """Put everything into one page."""
    origin = "Written by `python -m benchmarks.simulation --plots`"
    parts = [
        "# What the simulation says",
        f"{origin}; [scaling.md](scaling.md) says what it means. Costs of: {costs.about}.",
        "## One machine",
        "\n".join(f"- {line}" for line in compare.table(costs, FULL.entities)),
    ]
    for name, results in studies.items():
        parts += [f"## {name[0].upper()}{name[1:]}", _table("drains", _by_drains(results))]
    parts += [
        "## What changes when one thing does",
        _table("8 drains, Neo4j with 16 cores, no limit", changed.items()),
    ]
    for name, found in deaths.items():
        parts += [f"## A drain dies: {name}", _deaths(found)]
    FILE.write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def _by_drains(results: Iterable[Result]) -> Iterator[tuple[str, Result]]:
    for result in results:
        yield f"{result.scenario.drains:,}", result


def _table(first: str, rows: Iterable[tuple[str, Result]]) -> str:
    lines = [f"| {' | '.join((first, *HEAD))} |", "|---" * (len(HEAD) + 1) + "|"]
    lines += [f"| {' | '.join((name, *_cells(result)))} |" for name, result in rows]
    return "\n".join(lines)


def _cells(result: Result) -> tuple[str, ...]:
    minutes = result.seconds / MINUTE
    tally, name = result.tally, result.bottleneck
    return (
        f"{result.rate:,.0f}",
        _long(result.seconds_for(HUNDRED_MILLION)),
        f"{result.shares['mutex of the leases']:.0%} ({result.mutex_held:.0%})",
        f"{result.lease_wait(0.5):.2f} s / {result.lease_wait(0.99):.2f} s",
        f"{tally.timeouts / minutes:,.0f} / {tally.drains_given_up / minutes:,.0f}",
        f"{result.shares['processors of Neo4j']:.0%}",
        f"{name} ({result.shares[name]:.0%})",
    )


def _deaths(found: Iterable[Recovery]) -> str:
    head = "| drains | it held | first job available after | done again, jobs/s | all done after |"
    lines = [f"{head} with full hands |", "|---" * 6 + "|"]
    lines += [
        f"| {r.drains} | {r.held:,} | {_long(r.available)} | {r.per_second:,.1f} |"
        f" {_long(r.seconds)} | {r.full_hands:,} jobs: {_long(r.seconds_for(r.full_hands))} |"
        for r in found
    ]
    return "\n".join(lines)


def whole(result: Result) -> str:
    """One sentence about a run from the first job to the last."""
    tally = result.tally
    return (
        f"{result.done:,} done and {result.failed:,} failed in {_long(result.seconds)}"
        f" ({result.done / result.seconds:,.0f} jobs/s) by {result.scenario.drains} drains, with"
        f" {tally.requests:,} requests, of which the provider refused {tally.refused:,};"
        f" {tally.leases:,} leases. Bottleneck: {result.bottleneck}. {result.events:,} events."
    )


def _long(seconds: float) -> str:
    if seconds < 2 * MINUTE:
        return f"{seconds:.0f} s"
    if seconds < 2 * HOUR:
        return f"{seconds / MINUTE:.0f} min"
    if seconds < 72 * HOUR:
        return f"{seconds / HOUR:.1f} h"
    return f"{seconds / HOUR / 24:,.0f} days"
