"""Takes back at once what drains still hold that have failed or were canceled.

Not by the news of their end but by who holds jobs: nothing is missed while the database or the
daemon is away, and a queue at rest costs no question to Dagster.
"""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Final

import dagster as dg

from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.defs.runs import repository_of_run
from embed_pipeline.domain.fairness import SUSPECTS_AT_ONCE
from embed_pipeline.domain.job import JobStatus, run_id_of
from embed_pipeline.domain.results import tally_of

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
        tell_former_owners(instance, tally_of(jobs))
        return f"{len(jobs)} leases taken back"
    count = sum(neo4j.with_queues(lambda queue, _: queue.admin.release_owner(run.run_id)))
    if count:
        instance.report_engine_event(
            f"{count} jobs that this run held were given back untried, with their attempts; the "
            "next drains do them.",
            run,
        )
    return f"{count} leases given back"


def tell_former_owners(
    instance: dg.DagsterInstance, taken: Mapping[str, Counter[JobStatus]]
) -> None:
    """Say on the pages of the runs that held jobs what has become of these; of others is none.

    A worker that vanishes with its machine has lost its leases before Dagster notices its end.
    """
    by_run: dict[str, Counter[JobStatus]] = {}
    for owner, jobs in taken.items():
        by_run.setdefault(run_id_of(owner), Counter()).update(jobs)
    for run_id, jobs in by_run.items():
        if (run := instance.get_run_by_id(run_id)) is not None:
            instance.report_engine_event(_what_becomes_of(jobs), run)


def _what_becomes_of(jobs: Counter[JobStatus]) -> str:
    failed = jobs[JobStatus.FAILED]
    given_up = f" {failed} had no attempt left and are failed." if failed else ""
    return (
        f"{jobs.total()} jobs that this run held were taken back.{given_up} "
        f"{jobs.total() - failed} are pending again: one of them may have ended the run, so the "
        f"next drains try them apart from others, at most {SUSPECTS_AT_ONCE} at once, and the last "
        "attempt of each alone. Nothing needs to be done."
    )
