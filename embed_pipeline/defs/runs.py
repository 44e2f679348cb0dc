"""What Dagster knows of drains, and what it does not notice by itself."""

import os
import socket
from datetime import UTC, datetime, timedelta
from typing import Final

import dagster as dg
import psutil

from embed_pipeline.domain.pacing import Drains

DRAIN_JOB: Final = "drain_embed_queue"
DRAIN_TAG: Final = "embed_pipeline/drain"
"""Limits the drains at once, in ``dagster.yaml``."""
WORKER_TAG: Final = "embed_pipeline/worker"
MAX_RUNTIME_TAG: Final = "dagster/max_runtime"

UNDER_WAY: Final = (
    dg.DagsterRunStatus.QUEUED,
    dg.DagsterRunStatus.NOT_STARTED,
    dg.DagsterRunStatus.STARTING,
    dg.DagsterRunStatus.STARTED,
    dg.DagsterRunStatus.CANCELING,
)
ENDED: Final = (
    dg.DagsterRunStatus.SUCCESS,
    dg.DagsterRunStatus.FAILURE,
    dg.DagsterRunStatus.CANCELED,
)
_REMEMBERED: Final = 6
CLOCK_JITTER: Final = 5.0
"""Seconds by which the start of a process seems to move when the clock is set."""


def mark_worker(instance: dg.DagsterInstance, run_id: str, *, longest: timedelta) -> None:
    """Write down which process works on a run, and when it must have ended at the latest."""
    instance.add_run_tags(
        run_id,
        {
            WORKER_TAG: f"{socket.gethostname()}:{os.getpid()}:{_started(os.getpid()):.2f}",
            MAX_RUNTIME_TAG: str(int(longest.total_seconds())),
        },
    )


def fail_vanished(instance: dg.DagsterInstance) -> list[str]:
    """Mark drains as failed whose process is gone; they would stay STARTED for ever.

    Dagster notices the end of a process only through its parent. When both are killed, or the
    power fails, nobody is left to tell.
    """
    vanished = []
    alive = [dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING]
    for run in instance.get_runs(dg.RunsFilter(job_name=DRAIN_JOB, statuses=alive)):
        if is_gone(run.tags.get(WORKER_TAG, "")) and not _is_inherited(instance, run):
            instance.report_run_failed(
                run, "The process of this drain is gone; its leases are taken back."
            )
            vanished.append(run.run_id)
    return vanished


def _is_inherited(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Say whether the process is that of the run that this one repeats, whose tags it got."""
    parent = instance.get_run_by_id(run.parent_run_id) if run.parent_run_id else None
    return parent is not None and parent.tags.get(WORKER_TAG) == run.tags.get(WORKER_TAG)


def is_gone(worker: str) -> bool:
    """Say whether a process of this machine has ended; of others nothing is known."""
    host, _, process = worker.partition(":")
    pid, _, started = process.partition(":")
    if host != socket.gethostname() or not pid.isdecimal():
        return False
    try:
        return abs(_started(int(pid)) - float(started)) > CLOCK_JITTER
    except (OverflowError, ValueError, psutil.AccessDenied):
        # Anybody can write tags; one that says nothing must not stop the sensor that reads it.
        # And a process that we may not look at is there.
        return False


def know_drains(instance: dg.DagsterInstance) -> Drains:
    """Count the drains under way, and those that have failed lately."""
    running = instance.get_runs_count(dg.RunsFilter(job_name=DRAIN_JOB, statuses=list(UNDER_WAY)))
    last = instance.get_run_records(
        dg.RunsFilter(job_name=DRAIN_JOB, statuses=list(ENDED)), limit=_REMEMBERED
    )
    failed = 0
    for record in last:
        if record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
            break
        failed += 1
    since = None
    if failed:
        ended = max(record.update_timestamp for record in last[:failed])
        since = datetime.now(UTC) - ended.replace(tzinfo=UTC)
    return Drains(running=running, failed_in_a_row=failed, since_failure=since)


def _started(pid: int) -> float:
    """When a process started, 0 if there is none: a pid that is reused does not look alive."""
    try:
        process = psutil.Process(pid)
        is_alive = process.status() != psutil.STATUS_ZOMBIE
        return process.create_time() if is_alive else 0.0
    except psutil.NoSuchProcess:
        return 0.0
