"""``embed-pipeline jobs …``: look at jobs, try them again, cancel them, give them back."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Annotated

import typer

from embed_pipeline.cli import jobs_change as cli_jobs_change
from embed_pipeline.cli.base import AsJson, at, console, print_json, safe, show, table, with_queue
from embed_pipeline.cli.filters import Categories, Entities, Model, OlderThan, Owner, Statuses
from embed_pipeline.domain.errors import QueueError
from embed_pipeline.domain.job import Job, JobStatus, is_holder
from embed_pipeline.domain.words import number_of
from embed_pipeline.operations.selection import job_filter

if TYPE_CHECKING:
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.queue import Queue

app = typer.Typer(help="Jobs: look, try again, cancel, give back.", no_args_is_help=True)
app.command()(cli_jobs_change.retry)
app.command()(cli_jobs_change.cancel)
app.command()(cli_jobs_change.restore)


@app.command("list")
def list_jobs(
    status: Statuses = None,
    category: Categories = None,
    model: Model = None,
    entity: Entities = None,
    owner: Owner = None,
    older_than: OlderThan = None,
    limit: Annotated[int, typer.Option(min=1, max=10_000, help="At most so many.")] = 50,
    after: Annotated[
        str | None, typer.Option(metavar="ID", help="Begin after this id: the next page.")
    ] = None,
    json: AsJson = False,
) -> None:
    """List jobs, the newest first; all conditions must hold."""

    async def work(queue: Queue, _: Settings) -> list[Job]:
        which = await job_filter(
            queue,
            statuses=status,
            categories=category,
            model=model,
            entities=entity,
            owner=owner,
            older_than=older_than,
        )
        return await queue.desk.newest(which, limit=limit, after=after)

    jobs = with_queue(work)
    if json:
        print_json(jobs)
        return
    rows = table("ID", "STATE", "ENTITY", "VERSION", "MODEL", "TRIES", "CREATED", "NOTE")
    rows.columns[0].no_wrap = True
    for job in jobs:
        tries = f"{job.attempts}/{job.max_attempts}"
        version = f"{job.version}"
        created = f"{job.created_at:%m-%d %H:%M}"
        others = (safe(job.entity_uid), version, safe(job.model), tries, created, safe(_note(job)))
        rows.add_row(job.id, job.status, *others)
    if jobs:
        show(rows)
    if len(jobs) == limit:
        console.print(f"… the next page: --after {jobs[-1].id}")
    elif not jobs:
        console.print("No such jobs.")


@app.command("show")
def show_job(
    job_id: Annotated[str, typer.Argument(metavar="ID", help="Id of the job.")],
    json: AsJson = False,
) -> None:
    """Show everything about one job: state, owner, errors, costs."""
    job = with_queue(lambda queue, _: queue.admin.job_status(job_id))
    if json:
        print_json(job)
        return
    rows = table()
    for field in dataclasses.fields(job):
        value = getattr(job, field.name)
        if value is None or value == ():
            continue
        if field.name.endswith(("_at", "_until", "_after")):
            value = at(value)
        elif isinstance(value, tuple):
            value = "\n".join(value)
        rows.add_row(field.name.replace("_", " "), safe(value))
    show(rows)


@app.command()
def release(
    owner: Annotated[
        str, typer.Option(metavar="OWNER", help="A worker as 'jobs show' names it, or a run id.")
    ],
    crashed: Annotated[
        bool, typer.Option(help="It died: the attempt counts, for a job may have killed it.")
    ] = False,
) -> None:
    """Give back what a worker holds, without waiting for its leases to expire.

    Should it still be alive, its writes are refused.
    """

    async def work(queue: Queue, _: Settings) -> int:
        if not is_holder(owner, await queue.lookout.holders()):
            raise QueueError(f"no owner called {owner!r} holds a job; 'jobs list' shows the owners")
        if crashed:
            return len(await queue.admin.recover_owner(owner))
        return await queue.admin.release_owner(owner)

    console.print(f"✓ {number_of(with_queue(work))} given back")


def _note(job: Job) -> str:
    if job.status is JobStatus.PROCESSING:
        return f"{job.lock_owner} until {at(job.lock_until)}"
    again = f"again after {at(job.run_after)}" if job.run_after else ""
    error = f"{job.error_category}: {job.error}" if job.error and job.error_category else job.error
    notes = [again, error, f"by {job.cancelled_by}" if job.cancelled_by else ""]
    return "; ".join(note for note in notes if note)[:300]
