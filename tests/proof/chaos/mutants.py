"""Guards taken out on purpose: a run with one of these must report violations.

What cannot see a broken queue proves nothing about a sound one.
"""

from collections.abc import Callable
from datetime import timedelta
from typing import Any, Final

from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.lifecycle import Retry
from embed_pipeline.store import (
    complete as completing,
    job_store,
    lease as leasing,
    recover as recovering,
    scan as scanning,
)
from embed_pipeline.store.cypher import pieces as cypher_pieces, worker as cypher_worker
from tests.proof.chaos.patching import patch


def _finish_without_fence() -> None:
    """Whoever held the job once may complete it."""
    guard = "job.status = 'processing' AND job.fence = row.fence AND job.lock_owner = row.owner"
    _reword(completing, "FINISH_JOBS", guard, "true")


def _release_without_refund() -> None:
    """A job that was given back untried has lost an attempt."""
    patch(job_store, "back_to_pending", lambda move: _with(move, is_refunded=False))


def _suspects_in_company() -> None:
    """A job that may have killed its worker is leased together with others, to its last attempt."""
    patch(
        leasing, "group_of", lambda _: lambda suspects, limit: [id_ for id_, _ in suspects][:limit]
    )


def _recovery_of_the_living() -> None:
    """Recovery takes leases shortly before they expire, and does not look again."""

    def hasty(recover: Callable[..., Any]) -> Callable[..., Any]:
        def work(tx: Any, database: Any, config: Any, ids: Any, *_: Any, **options: Any) -> Any:
            return recover(tx, database, config, ids, lambda *_: True, **options)

        return work

    patch(recovering, "_recover", hasty)
    _reword(cypher_worker, "PICK_EXPIRED", "now - $grace", "now + 5000 - $grace")


def _text_not_compared() -> None:
    """A vector is stored although the text has changed since it was read."""
    patch(completing, "_misfit", lambda _: lambda *_: None)


def _no_end_of_attempts() -> None:
    """A job that kills its worker is tried for ever."""
    patch(recovering, "after_expiry", lambda _: lambda **_: Retry(timedelta(0)))


def _pieces_kept() -> None:
    """The pieces of the former text stay beside those of the new one."""
    _reword(cypher_pieces, "REMOVE_PIECES", "DETACH DELETE piece", "SET piece.kept = true")


def _pieces_of_other_vectors() -> None:
    """A piece gets another vector than that of its words; the mean is right."""
    _reword(cypher_pieces, "CREATE_PIECES", "row.vector)", "reverse(row.vector))")


def _neighbours_not_compared() -> None:
    """The scan takes a text whose neighbours have changed for the one that was embedded."""
    patch(scanning, "classify", lambda judge: lambda *args, **_: _current_or(judge, *args, **_))


def _current_or(judge: Callable[..., Coverage], *args: Any, **options: Any) -> Coverage:
    found = judge(*args, **options)
    return Coverage.CURRENT if found is Coverage.STALE else found


def _vector_not_written() -> None:
    """The job is completed, and its vector never written."""
    patch(completing, "_write_vectors", lambda _: _nothing)


MUTANTS: Final[dict[str, Callable[[], None]]] = {
    "finish-without-fence": _finish_without_fence,
    "release-without-refund": _release_without_refund,
    "suspects-in-company": _suspects_in_company,
    "recovery-of-the-living": _recovery_of_the_living,
    "text-not-compared": _text_not_compared,
    "no-end-of-attempts": _no_end_of_attempts,
    "vector-not-written": _vector_not_written,
    "pieces-kept": _pieces_kept,
    "pieces-of-other-vectors": _pieces_of_other_vectors,
    "neighbours-not-compared": _neighbours_not_compared,
}


def apply(name: str) -> None:
    MUTANTS[name]()


def _reword(module: Any, constant: str, old: str, new: str) -> None:
    def reworded(statement: str) -> str:
        assert old in statement, f"{constant} no longer holds what this mutant takes out"
        return statement.replace(old, new)

    patch(module, constant, reworded)


def _with(function: Callable[..., Any], **forced: Any) -> Callable[..., Any]:
    return lambda *args, **options: function(*args, **{**options, **forced})


async def _nothing(*_: Any) -> None:
    pass
