"""What a reported failure does to its job."""

from collections import Counter
from collections.abc import Sequence

from embed_pipeline.domain.lifecycle import GiveBack, GiveUp, Move, Retry, after_failure
from embed_pipeline.domain.redact import MAX_MESSAGE, MAX_STACK, redact
from embed_pipeline.domain.results import Failure, FailureOutcome
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.database import Database, Transaction, duration_ms
from embed_pipeline.store.moves import Change, ErrorNote, back_to_pending, ended
from embed_pipeline.store.records import Properties, is_held, settled_as
from embed_pipeline.store.transactions import change_jobs, count, lock_jobs, new_token, write_once

_ENDINGS = frozenset(FailureOutcome)


async def fail(
    database: Database, config: QueueConfig, rows: Sequence[Failure]
) -> list[FailureOutcome]:
    """Record each failure and let the retry policy decide."""
    token = new_token()

    async def work(tx: Transaction) -> list[FailureOutcome]:
        jobs, now = await lock_jobs(
            tx, (row.lease.job_id for row in rows), token=token, now=database.now_ms
        )
        applied: list[tuple[Properties, FailureOutcome, Change]] = []
        outcomes: list[FailureOutcome] = []
        for row in rows:
            job = jobs.get(row.lease.job_id)
            if job is None or not is_held(job, row.lease):
                outcomes.append(_repeated(job, row))
                continue
            outcome, change = _decide(job, row, config, now)
            outcomes.append(outcome)
            applied.append((job, outcome, change))
        await change_jobs(tx, [change for _, _, change in applied])
        tally = Counter(outcome for _, outcome, _ in applied)
        counts = {
            "fenced": sum(_is_lost(jobs.get(row.lease.job_id), row) for row in rows),
            "retried": tally[FailureOutcome.RETRY],
            "given_back": tally[FailureOutcome.GIVEN_BACK],
            "exhausted": sum(_is_exhausted(job, outcome) for job, outcome, _ in applied),
        }
        await count(tx, config.queue, counts, token=token, has_changes=bool(applied))
        return outcomes

    return await write_once(database, config.queue, token, work)


def _decide(
    job: Properties, row: Failure, config: QueueConfig, now: int
) -> tuple[FailureOutcome, Change]:
    note = ErrorNote(
        row.category,
        redact(row.message, config.secrets)[:MAX_MESSAGE],
        redact(row.stack, config.secrets)[-MAX_STACK:] or None,
    )
    decision = after_failure(
        row.category,
        attempts=job["attempts"],
        max_attempts=job["max_attempts"],
        policy=config.retry,
        roll=config.roll(),
        is_pinned=row.is_pinned,
        is_outage=row.is_outage,
    )
    if isinstance(decision, GiveUp) and _is_other_text(job, row):
        # A newer text was asked for meanwhile: that one has not been tried yet.
        decision = GiveBack()
    match decision:
        case GiveUp():
            outcome = FailureOutcome.FAILED
            text = {"text_hash": row.text_hash} if row.text_hash else {}
            return outcome, ended(job, Move.EXHAUST, now=now, note=note, settled_as=outcome, **text)
        case GiveBack():
            outcome = FailureOutcome.GIVEN_BACK
            return outcome, back_to_pending(
                job,
                Move.RELEASE,
                now=now,
                is_refunded=True,
                note=note,
                settled_as=outcome,
                text_hash=row.text_hash,
            )
        case Retry(delay=delay):
            outcome = FailureOutcome.RETRY
            return outcome, back_to_pending(
                job,
                Move.RETRY,
                now=now,
                delay_ms=max(1, duration_ms(delay)),
                note=note,
                settled_as=outcome,
            )


def _is_other_text(job: Properties, row: Failure) -> bool:
    asked_for = job.get("text_hash")
    return row.text_hash is not None and asked_for is not None and asked_for != row.text_hash


def _repeated(job: Properties | None, row: Failure) -> FailureOutcome:
    ending = settled_as(job, row.lease)
    return FailureOutcome(ending) if ending in _ENDINGS else FailureOutcome.FENCED


def _is_lost(job: Properties | None, row: Failure) -> bool:
    """Whether a refused failure means a lost lease, not one that the worker itself has ended."""
    return not is_held(job, row.lease) and settled_as(job, row.lease) is None


def _is_exhausted(job: Properties, outcome: FailureOutcome) -> bool:
    return outcome is FailureOutcome.FAILED and job["attempts"] >= job["max_attempts"]
