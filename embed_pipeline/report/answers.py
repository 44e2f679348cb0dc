"""The questions of an owner, answered from the history: each with a verdict and its reasons."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

import pandas as pd

from embed_pipeline.domain.quality import FLOOR
from embed_pipeline.domain.words import number_of, span
from embed_pipeline.report.advice import advice
from embed_pipeline.report.source import (
    History,
    arrived,
    completed,
    has_nothing_to_embed,
    latest,
    rise,
    worst,
)
from embed_pipeline.report.words import at, plain

QUIET: Final = timedelta(minutes=15)
MISSED_READINGS: Final = 10
"""Readings come late on a busy machine; so many in a row do not."""
LATELY: Final = 20
"""The part of the time that decides whether a late queue is catching up: of a week, eight hours."""
LOOK_AT_DAGSTER: Final = "Is Dagster running, and its sensor queue_metrics on?"


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer in one line, and what it rests on; ``is_good`` is ``None`` where it is neither.

    ``is_amber`` where all is well now, but an objective was missed.
    """

    question: str
    verdict: str
    is_good: bool | None
    reasons: tuple[str, ...] = ()
    is_amber: bool = False


def answers(history: History) -> list[Answer]:
    """Answer all questions; without readings there is little to say."""
    if history.metrics.empty:
        nothing = "There are no readings in this time."
        found = [Answer("Are we keeping up?", nothing, is_good=False, reasons=(LOOK_AT_DAGSTER,))]
        return [*found, _failing(history)] if len(history.failures) else found
    return [
        *(_keeping_up(history), _failing(history), _cost(history)),
        *_quality(history),
        _changes(history),
    ]


def _keeping_up(history: History) -> Answer:
    is_good, verdict = _pace(history)
    signs, is_amber = tuple(_signs(history)), is_good is None
    return Answer("Are we keeping up?", verdict, is_good, signs, is_amber=is_amber)


def _pace(history: History) -> tuple[bool | None, str]:
    metrics, waiting = history.metrics, latest(history.metrics, "pending")
    wait = f"{number_of(waiting)} {'waits' if waiting == 1 else 'wait'}"
    silence = history.now - metrics.index[-1]
    if silence > _patience(metrics):
        return False, f"Unknown: the last reading is {span(silence)} old. {LOOK_AT_DAGSTER}"
    if latest(metrics, "is_breaker_open"):
        return False, f"No: the breaker is open, and {wait}."
    if latest(metrics, "is_paused"):
        return False, f"No: the queue is paused, and {wait}."
    if latest(metrics, "budget_used_percent") >= 100:
        return False, f"No: the budget is used, it goes on with the next day or month; {wait}."
    age = timedelta(seconds=latest(metrics, "oldest_pending_seconds"))
    allowed = history.objectives.oldest_pending
    if age <= allowed:
        done = f"{number_of(completed(metrics))} completed, {waiting:,.0f} waiting now."
        missed = ", ".join(_missed(history))
        return (None, f"Yes, but {missed}: {done}") if missed else (True, f"Yes: {done}")
    lately = metrics["pending"].dropna().iloc[-(len(metrics) // LATELY + 2) :]
    if lately.iloc[0] > waiting:
        less = f"{lately.iloc[0] - waiting:,.0f} fewer than at {at(lately.index[0])} UTC"
        return False, f"Not yet, but it is catching up: {wait}, {less}."
    return False, f"No: {wait}, the oldest for {span(age)}; {span(allowed)} are allowed."


def _missed(history: History) -> Iterator[str]:
    """The objectives missed in the time, or missed now."""
    metrics, wanted = history.metrics, history.objectives
    if worst(metrics, "oldest_pending_seconds") > wanted.oldest_pending.total_seconds():
        yield "jobs have waited too long"
    if "coverage_percent" in metrics:
        current = latest(metrics, "coverage_percent")
        if current < wanted.coverage_percent:
            yield "too few entities are current"
    if _failed_percent(metrics) > wanted.failed_percent:
        yield "too many jobs have failed"


def _patience(metrics: pd.DataFrame) -> timedelta:
    if len(metrics) < 2:
        return QUIET
    usual = metrics.index.to_series().diff().dt.total_seconds().median()
    return max(QUIET, MISSED_READINGS * timedelta(seconds=usual))


def _signs(history: History) -> Iterator[str]:
    metrics = history.metrics
    done = completed(metrics)
    yield f"{number_of(arrived(metrics))} arrived, {done:,.0f} completed."
    longest = timedelta(seconds=worst(metrics, "oldest_pending_seconds"))
    allowed = history.objectives.oldest_pending
    yield f"The longest wait was {span(longest)}; {span(allowed)} are allowed."
    empty = metrics.index[metrics["pending"] == 0]
    if len(empty):
        yield f"The queue was last empty at {at(empty[-1])} UTC."
    else:
        yield "The queue was never empty."
    if "coverage_percent" in metrics:
        wanted = history.objectives.coverage_percent
        current = latest(metrics, "coverage_percent")
        share = f"{current:.1f} % of the entities are current; {wanted:g} % are wanted."
        yield "There is nothing to embed." if has_nothing_to_embed(metrics) else share
        if without := latest(metrics, "entities_empty_text"):
            yield f"Entities without text, which have no vector and do not count: {without:,.0f}."
        if "pieces" in metrics and (pieces := latest(metrics, "pieces")):
            long = latest(metrics, "entities_in_pieces")
            yield f"Entities whose text is in pieces: {long:,.0f}, with {pieces:,.0f} pieces."
        if changed := worst(metrics, "entities_neighbours_changed"):
            yield (
                f"Entities of which only neighbours had changed: at most {changed:,.0f} at once; "
                "they wait behind everything else."
            )


def _failing(history: History) -> Answer:
    found, question = history.failures, "What fails?"
    if found.empty:
        return Answer(question, "Nothing.", is_good=True)
    failed, top = int(found["count"].sum()), found.iloc[0]
    most = int(top["count"])
    kinds = number_of(len(found), "kind") + " of error"
    share, allowed = _failed_percent(history.metrics), history.objectives.failed_percent
    return Answer(
        question,
        f"{number_of(failed)}, by {kinds}.",
        is_good=share <= allowed,
        reasons=(
            f"{share:.2f} % of the ended jobs that are kept; {allowed:g} % are allowed.",
            f"Most frequent ({most:,}), {top['category']}: {plain(str(top['example_error']))}",
        ),
    )


def _failed_percent(metrics: pd.DataFrame) -> float:
    failed, done = latest(metrics, "failed"), latest(metrics, "completed")
    return 100 * failed / (failed + done) if failed else 0.0


def _cost(history: History) -> Answer:
    metrics, model = history.metrics, history.model
    tokens, known = rise(metrics, "tokens_total"), rise(metrics, "cache_hits_total")
    cost = rise(metrics, "cost_usd_total")
    reasons = [
        f"{number_of(rise(metrics, 'requests_total'), 'request')}, {number_of(tokens, 'token')}.",
        f"{number_of(known, 'text')} had been embedded before and cost nothing.",
    ]
    if others := sorted(_models(history.drains) - {model}):
        reasons.append(f"Drains also used {plain(', '.join(others))}, each at its own price.")
    is_unknown = tokens > 0 and cost == 0
    verdict = f"No price is known for {model}." if is_unknown else f"${cost:,.4f}"
    return Answer("What did it cost?", verdict, is_good=None, reasons=tuple(reasons))


def _quality(history: History) -> list[Answer]:
    """The answer about quality, if it was measured."""
    value = latest(history.metrics, "quality_auc")
    if not value:
        return []
    low, high = (latest(history.metrics, f"quality_auc_{end}") for end in ("low", "high"))
    is_signal = max(value, latest(history.metrics, "quality_auc_of_words")) >= FLOOR
    verdict = f"An edge is nearer than a pair without one in {100 * value:.0f} % of the cases."
    reasons = [f"{100 * low:.0f} to {100 * high:.0f} % with a certainty of 95 %; 50 % is chance."]
    if not is_signal:
        reasons.append("No signal: joined texts share no more words than others do.")
    return [
        Answer(
            "Are the vectors good?",
            verdict,
            is_good=value >= FLOOR if is_signal else None,
            reasons=tuple(reasons),
        )
    ]


def _models(drains: pd.DataFrame) -> set[str]:
    return {str(name) for name in drains["model"].dropna()} if "model" in drains else set()


def _changes(history: History) -> Answer:
    found, question = tuple(advice(history)), "What should I change?"
    if not found:
        return Answer(question, "Nothing.", is_good=True)
    verdict = "One thing." if len(found) == 1 else f"{len(found)} things, the most urgent first."
    return Answer(question, verdict, is_good=False, reasons=found)
