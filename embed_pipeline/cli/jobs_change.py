"""``embed-pipeline jobs retry``, ``cancel`` and ``restore``: preview, ask, change, report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Final, Protocol

import typer

from embed_pipeline.cli.base import Yes, confirm, console, operator, safe, with_queue
from embed_pipeline.cli.filters import Categories, Entities, Model, OlderThan, Owner, Statuses
from embed_pipeline.domain.errors import JobNotFoundError, TransitionRefusedError
from embed_pipeline.domain.job import Job, JobFilter, JobStatus
from embed_pipeline.domain.lifecycle import MOVES, Move
from embed_pipeline.domain.words import number_of
from embed_pipeline.operations.selection import job_filter, to_retry

if TYPE_CHECKING:
    from embed_pipeline.domain.results import BulkReport
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue

Ids = Annotated[list[str] | None, typer.Argument(metavar="[ID]...", help="Jobs by their ids.")]
All = Annotated[bool, typer.Option("--all", help="All jobs; needed where no filter is given.")]
Preview = Annotated[bool, typer.Option("--preview", help="Say what would change; change nothing.")]

SHOWN_IDS: Final = 10


class Change(Protocol):
    """Change the jobs of a filter, or preview that."""

    async def __call__(self, queue: Queue, which: JobFilter, *, preview: bool) -> BulkReport:
        """Apply the change, or count what it would touch."""
        ...


@dataclass(frozen=True, slots=True)
class Words:
    """The words with which a change is reported."""

    move: Move
    verb: str
    past: str
    hint: str = ""

    @property
    def sources(self) -> frozenset[JobStatus]:
        """The states that the change starts from."""
        return MOVES[self.move][0]


RETRY: Final = Words(
    Move.RETRY_FAILED,
    "retry",
    "pending again",
    hint=" (PERMANENT failures need --category PERMANENT)",
)
CANCEL: Final = Words(Move.CANCEL, "cancel", "cancelled")
RESTORE: Final = Words(Move.REVIVE, "restore", "pending again")


def retry(
    ids: Ids = None,
    category: Categories = None,
    model: Model = None,
    entity: Entities = None,
    older_than: OlderThan = None,
    everything: All = False,
    preview: Preview = False,
    yes: Yes = False,
) -> None:
    """Give failed jobs a fresh start: pending, no attempts, no error.

    A filter leaves out PERMANENT failures unless --category PERMANENT asks for them.
    """

    async def change(queue: Queue, which: JobFilter, *, preview: bool) -> BulkReport:
        return await queue.admin.retry_failed(to_retry(which), preview=preview)

    async def work(queue: Queue, _: Settings) -> None:
        which = await job_filter(
            queue,
            ids=ids,
            categories=category,
            model=model,
            entities=entity,
            older_than=older_than,
            everything=everything,
        )
        await _change(queue, which, change, words=RETRY, preview=preview, yes=yes)

    with_queue(work)


def cancel(
    ids: Ids = None,
    status: Statuses = None,
    category: Categories = None,
    model: Model = None,
    entity: Entities = None,
    owner: Owner = None,
    older_than: OlderThan = None,
    everything: All = False,
    reason: Annotated[str, typer.Option(metavar="TEXT", help="Stands on the jobs.")] = "",
    preview: Preview = False,
    yes: Yes = False,
) -> None:
    """Cancel jobs that are pending or processing; no vector of theirs is written any more."""

    async def change(queue: Queue, which: JobFilter, *, preview: bool) -> BulkReport:
        return await queue.admin.cancel(which, by=str(operator()), reason=reason, preview=preview)

    async def work(queue: Queue, _: Settings) -> None:
        which = await job_filter(
            queue,
            ids=ids,
            statuses=status,
            categories=category,
            model=model,
            entities=entity,
            owner=owner,
            older_than=older_than,
            everything=everything,
        )
        await _change(queue, which, change, words=CANCEL, preview=preview, yes=yes)

    with_queue(work)


def restore(
    ids: Ids = None,
    model: Model = None,
    entity: Entities = None,
    older_than: OlderThan = None,
    everything: All = False,
    preview: Preview = False,
    yes: Yes = False,
) -> None:
    """Undo a cancel: jobs that an operator has cancelled are pending again."""

    async def change(queue: Queue, which: JobFilter, *, preview: bool) -> BulkReport:
        return await queue.desk.restore(which, is_preview=preview)

    async def work(queue: Queue, _: Settings) -> None:
        which = await job_filter(
            queue,
            ids=ids,
            model=model,
            entities=entity,
            older_than=older_than,
            everything=everything,
        )
        await _change(queue, which, change, words=RESTORE, preview=preview, yes=yes)

    with_queue(work)


async def _change(
    queue: Queue,
    which: JobFilter,
    change: Change,
    *,
    words: Words,
    preview: bool,
    yes: bool,
) -> None:
    """Preview, confirm large changes, apply, and report."""
    named = await _named(queue, which.ids) if which.ids else []
    if refused := [job for job in named if job.status not in words.sources]:
        raise TransitionRefusedError(
            f"cannot {words.verb} job {refused[0].id}: it is {refused[0].status}, not "
            f"{' or '.join(sorted(words.sources))}; nothing was changed"
        )
    report = await change(queue, which, preview=True)
    states = ", ".join(f"{count} {status}" for status, count in report.counts.items() if count)
    found = f"{number_of(report.count)} ({states})" if states else f"no jobs{words.hint}"
    if preview or report.count == 0:
        console.print(f"▸ Would {words.verb} {found}; nothing was changed")
        for job_id, uid in list(zip(report.job_ids, report.entity_uids, strict=True))[:SHOWN_IDS]:
            console.print(f"  {job_id}  {safe(uid)}", soft_wrap=True)
        if report.count > SHOWN_IDS:
            console.print(f"  … and {report.count - SHOWN_IDS} more")
        return
    if not named:
        confirm(f"{words.verb.capitalize()} {found}?", yes=yes)
    done = await change(queue, which, preview=False)
    console.print(f"✓ {number_of(done.count)} {words.past}")


async def _named(queue: Queue, ids: tuple[str, ...]) -> list[Job]:
    jobs = await queue.admin.find_jobs(JobFilter(ids=ids), limit=len(ids))
    if missing := sorted(set(ids) - {job.id for job in jobs}):
        raise JobNotFoundError(f"there is no job {missing[0]}; nothing was changed")
    return jobs
