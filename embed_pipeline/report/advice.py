"""What the history suggests to change, the most urgent first."""

from collections.abc import Iterator
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.words import number_of, span
from embed_pipeline.report.source import History, latest, left_out, rise, total, worst

MANY_WAITS: Final = 0.2
"""Share of a drain's time spent waiting for the limit from which on the limit is the bottleneck."""
MANY_REFUSALS: Final = 0.05
"""Share of requests that the provider refused as too many, from which on the limit is too high."""


def advice(history: History) -> Iterator[str]:
    """Say what to change, and why; nothing where all is well."""
    for judge in (_breaker, _coverage, _limit, _refusals, _silent, _late, _heartbeats, _failed):
        if text := judge(history):
            yield text


def _breaker(history: History) -> str | None:
    metrics = history.metrics
    if not worst(metrics, "is_breaker_open"):
        return None
    time = (metrics.index[-1] - metrics.index[0]).to_pytimedelta()
    share = float(metrics["is_breaker_open"].mean())
    return (
        f"The breaker was open for about {span(time * share)}: the failed drains say why, "
        "usually the key or the account."
    )


def _coverage(history: History) -> str | None:
    wanted = history.objectives.coverage_percent
    if "coverage_percent" not in history.metrics:
        return None
    current, waiting = latest(history.metrics, "coverage_percent"), "entities_waiting"
    if current >= wanted or latest(history.metrics, waiting):
        return None
    return (
        f"{current:.1f} % of the entities are current{left_out(history.metrics)}, {wanted:g} % are "
        "wanted, and nothing waits for the rest: 'embed-pipeline jobs retry' tries failed jobs "
        "again, 'embed-pipeline jobs restore' brings back what operators have cancelled, and what "
        "has no job gets one by 'embed-pipeline reconcile'."
    )


def _limit(history: History) -> str | None:
    working = total(history.drains, "seconds")
    share = total(history.drains, "seconds_waiting") / working if working else 0.0
    longest = timedelta(seconds=worst(history.metrics, "oldest_pending_seconds"))
    if share <= MANY_WAITS or longest <= history.objectives.oldest_pending:
        return None
    return (
        f"Drains wait {100 * share:.0f} % of their time for the rate limit while jobs are late: "
        "raise EMBEDDING_RATE_LIMIT_TOKENS if the account allows more."
    )


def _refusals(history: History) -> str | None:
    limited = rise(history.metrics, "requests_limited_total")
    sent = rise(history.metrics, "requests_total")
    if not sent or limited / sent <= MANY_REFUSALS:
        return None
    return (
        f"The provider refused {100 * limited / sent:.0f} % of the requests as too many: lower "
        "EMBEDDING_RATE_LIMIT_TOKENS, or find out who else uses the key."
    )


def _silent(history: History) -> str | None:
    taken = rise(history.metrics, "recovered_total")
    if not taken:
        return None
    return (
        f"{number_of(taken, 'lease')} had to be taken from silent workers: look for killed runs "
        "and for lack of memory."
    )


def _late(history: History) -> str | None:
    fenced = rise(history.metrics, "fenced_total")
    if not fenced:
        return None
    return (
        f"{number_of(fenced, 'write')} came too late and had to be refused: workers were paused "
        "longer than their lease. A longer EMBED_JOB_LOCK_DURATION_MS helps."
    )


def _heartbeats(history: History) -> str | None:
    failed = rise(history.metrics, "heartbeats_failed_total")
    if not failed:
        return None
    return f"{number_of(failed, 'heartbeat')} failed: look at the connection to Neo4j and its load."


def _failed(history: History) -> str | None:
    if history.failures.empty:
        return None
    return (
        "Look through the failed jobs below; 'embed-pipeline jobs retry' or the job "
        "retry_failed_jobs tries them again."
    )
