"""Takes back at once what drains still hold that have failed or were canceled.

Not by the news of their end but by who holds jobs: nothing is missed while the database or the
daemon is away, and a queue at rest costs no question to Dagster.
"""

import logging
from collections.abc import Sequence
from typing import Final

import dagster as dg

from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import repository_of_run
from embed_pipeline.domain.fairness import SUSPECTS_AT_ONCE
from embed_pipeline.domain.job import JobStatus, run_id_of
from embed_pipeline.domain.results import RecoveredJob

RECOVERY_IS_OFF: Final = (
    "its leases are left as they are, recovery is off (EMBED_JOB_RECOVERY_INTERVAL=0); "
    "release_leases_of_run takes them back"
)
ENDINGS: Final = {
    dg.DagsterRunStatus.FAILURE: "failed",
    dg.DagsterRunStatus.CANCELED: "was canceled",
}


def take_back(
    instance: dg.DagsterInstance,
    neo4j: Neo4jResource,
    holders: Sequence[str],
    *,
    repository: str | None,
    log: logging.Logger,
) -> list[str]:
    """Take leases away from holders whose run has ended; returns a sentence about each run."""
    said = []
    for run_id in dict.fromkeys(map(run_id_of, holders)):
        run = instance.get_run_by_id(run_id)
        if run is None or (repository and repository_of_run(run) != repository):
            continue
        if ending := ENDINGS.get(run.status):
            said.append(f"drain {run_id} {ending}: {_take_back(instance, neo4j, run)}")
            log.warning(said[-1])
    return said


def _take_back(instance: dg.DagsterInstance, neo4j: Neo4jResource, run: dg.DagsterRun) -> str:
    """Take all leases away from a run; its page says what becomes of the jobs.

    What a failed drain held keeps its attempt and is tried apart from others: one of the jobs may
    have killed the worker. A canceled one has usually given everything back itself, unless the
    cancellation was forced or the process did not react.
    """
    if not neo4j.settings.recovery_interval:
        return RECOVERY_IS_OFF
    if run.status is dg.DagsterRunStatus.FAILURE:
        found = neo4j.with_queues(lambda queue, _: queue.admin.recover_owner(run.run_id))
        jobs = [job for jobs in found for job in jobs]
        if jobs:
            instance.report_engine_event(_what_becomes_of(jobs), run)
        return f"{len(jobs)} leases taken back"
    count = sum(neo4j.with_queues(lambda queue, _: queue.admin.release_owner(run.run_id)))
    if count:
        instance.report_engine_event(
            f"{count} jobs that this run held were given back untried, with their attempts; the "
            "next drains do them.",
            run,
        )
    return f"{count} leases given back"


def _what_becomes_of(jobs: Sequence[RecoveredJob]) -> str:
    """Log the outcome on the page of the run that held the jobs."""
    failed = sum(job.status is JobStatus.FAILED for job in jobs)
    given_up = f" {failed} had no attempt left and are failed." if failed else ""
    return (
        f"{len(jobs)} jobs that this run held were taken back.{given_up} {len(jobs) - failed} are "
        f"pending again: one of them may have ended the run, so the next drains try them apart "
        f"from others, at most {SUSPECTS_AT_ONCE} at once, and the last attempt of each alone. "
        "Nothing needs to be done."
    )
