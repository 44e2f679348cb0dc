"""What Dagster knows of drains, and what it does not notice by itself."""

import os
import socket
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Final

import dagster as dg
import psutil

from embed_pipeline.domain.pacing import Drains

DRAIN_JOB: Final = "drain_embed_queue"
DRAIN_TAG: Final = "embed_pipeline/drain"
"""On every run that drains: limits those at once, in ``dagster.yaml``."""
EMBEDDINGS: Final = "entity_embeddings"
"""The asset whose materialization is a drain."""
QUEUE_TAG: Final = "embed_pipeline/queue"
"""Marks the drains of the queue beside the live one, while a cut-over is under way."""
STANDBY_TAG: Final = "embed_pipeline/standby"
"""On the drains that are to stay although nothing is due."""
WORKER_TAG: Final = "embed_pipeline/worker"
MAX_RUNTIME_TAG: Final = "dagster/max_runtime"
REPOSITORY_TAG: Final = ".dagster/repository"
"""Dagster stores it with every run: repository@location. Ask ``repository_of_run``."""

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
LONGEST_START: Final = timedelta(minutes=3)
"""As Dagster allows for what comes before, ``start_timeout_seconds`` in ``dagster.yaml``."""
SLACK: Final = timedelta(minutes=5)
"""For the start of the process, the last requests and giving back."""
TO_FOLLOW: Final = timedelta(seconds=30)
"""So long before a drain on standby ends the next one is started."""
LONG_IN_LINE: Final = timedelta(minutes=1)
"""A run that is queued for longer has no place, and says nothing about when it will."""
TAKEN_BACK: Final = "its leases are taken back"
CLOCK_JITTER: Final = 5.0
"""Seconds by which the start of a process seems to move while the clock is corrected."""
now: Final = time.time
"""Moved by tests."""


def mark_worker(
    instance: dg.DagsterInstance,
    run_id: str,
    *,
    longest: timedelta,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Record which process works on a run, and when it must have ended at the latest."""
    instance.add_run_tags(
        run_id,
        {
            **tags,
            DRAIN_TAG: "true",
            WORKER_TAG: worker_mark(os.getpid()),
            MAX_RUNTIME_TAG: str(int(longest.total_seconds())),
        },
    )


def worker_mark(pid: int) -> str:
    """Identify a process uniquely: machine, pid and start time."""
    return f"{socket.gethostname()}:{pid}:{_started(pid):.2f}"


def _drains(statuses: Iterable[dg.DagsterRunStatus], repository: str | None) -> dg.RunsFilter:
    """Drains in one of these states, of one code location: each looks after its own.

    The job of another deployment may have the same name. None, where no daemon says who asks, is
    all of them.
    """
    own = {REPOSITORY_TAG: repository} if repository else {}
    # By tag: materializing the embeddings is a drain too.
    return dg.RunsFilter(statuses=list(statuses), tags={DRAIN_TAG: "true", **own})


def repository_of_run(run: dg.DagsterRun) -> str | None:
    """The code location of a run; unknown of one that no daemon or web server has launched.

    Dagster adds the tag where it stores a run, and leaves it out of the tags that it reads back.
    """
    return run.tags_for_storage().get(REPOSITORY_TAG)


def fail_vanished(
    instance: dg.DagsterInstance, repository: str | None = None, *, then: str = TAKEN_BACK
) -> list[str]:
    """Mark drains as failed whose process is gone; they would stay STARTED for ever.

    Dagster notices the end of a process only through its parent. When both are killed, or the
    power fails, nobody is left to tell. ``then`` says what becomes of its leases.
    """
    vanished = []
    alive = (dg.DagsterRunStatus.STARTED, dg.DagsterRunStatus.CANCELING)
    for record in instance.get_run_records(_drains(alive, repository)):
        run = record.dagster_run
        mark = run.tags.get(WORKER_TAG, "")
        if mark:
            has_vanished = is_gone(mark) and not _is_inherited(instance, run)
        else:
            has_vanished = _is_overdue(record.start_time)
        if has_vanished:
            instance.report_run_failed(run, f"The process of this drain is gone; {then}.")
            vanished.append(run.run_id)
    return vanished


def _is_overdue(started: float | None) -> bool:
    """Whether a drain should have marked its worker by now: that is its first action."""
    return started is not None and now() - started > LONGEST_START.total_seconds()


def _is_inherited(instance: dg.DagsterInstance, run: dg.DagsterRun) -> bool:
    """Whether the mark is that of the re-executed run, whose tags were copied."""
    parent = instance.get_run_by_id(run.parent_run_id) if run.parent_run_id else None
    return parent is not None and parent.tags.get(WORKER_TAG) == run.tags.get(WORKER_TAG)


def is_gone(worker: str) -> bool:
    """Whether a process of this machine has ended; of other machines nothing is known."""
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


def know_drains(
    instance: dg.DagsterInstance,
    repository: str | None = None,
    *,
    beside: bool = False,
    tags: Mapping[str, str] = MappingProxyType({}),
) -> Drains:
    """Count the drains of a code location that are under way, and those that failed lately.

    Those of the queue ``beside`` the live one are counted apart: neither holds the other up.
    ``tags`` tells the drains of one embedding from those of others.
    """

    def meant(records: Sequence[dg.RunRecord]) -> list[dg.RunRecord]:
        return [r for r in records if _is_meant(r.dagster_run.tags)]

    def _is_meant(found: Mapping[str, str]) -> bool:
        is_own = all(found.get(name) == value for name, value in tags.items())
        return is_own and (QUEUE_TAG in found) is beside

    running = meant(instance.get_run_records(_drains(UNDER_WAY, repository)))
    last = meant(instance.get_run_records(_drains(ENDED, repository), limit=2 * _REMEMBERED))
    last = last[:_REMEMBERED]
    failed = 0
    for record in last:
        if record.dagster_run.status is not dg.DagsterRunStatus.FAILURE:
            break
        failed += 1
    since = None
    if failed:
        since = _since(max(record.update_timestamp for record in last[:failed]))
    standing = [one for one in running if STANDBY_TAG in one.dagster_run.tags]
    in_line = [one for one in standing if _is_long_in_line(one)]
    return Drains(
        running=len(running),
        ending=sum(map(_is_ending, running)),
        standing=sum(not _is_ending(one) for one in standing) - len(in_line),
        in_line=len(in_line),
        settled=min(map(_running_for, running), default=None),
        failed_in_a_row=failed,
        since_failure=since,
    )


def _is_ending(record: dg.RunRecord) -> bool:
    """Whether the time of a drain is nearly used up; its tag has some slack."""
    longest = record.dagster_run.tags.get(MAX_RUNTIME_TAG, "")
    if record.start_time is None or not longest.isdecimal():
        return False
    end = record.start_time + int(longest) - SLACK.total_seconds()
    return now() > end - TO_FOLLOW.total_seconds()


def _is_long_in_line(record: dg.RunRecord) -> bool:
    """Whether a run has found no place for a while."""
    is_queued = record.dagster_run.status is dg.DagsterRunStatus.QUEUED
    return is_queued and _since(record.create_timestamp) > LONG_IN_LINE


def _running_for(record: dg.RunRecord) -> timedelta:
    """Zero for one that has not begun; a clock that was set back makes it no longer."""
    if record.start_time is None:
        return timedelta(0)
    return timedelta(seconds=max(0.0, now() - record.start_time))


def _since(at: datetime) -> timedelta:
    """Since a time that Dagster has noted, without a zone."""
    return datetime.fromtimestamp(now(), UTC) - at.replace(tzinfo=UTC)


def _started(pid: int) -> float:
    """When a process started, 0 if there is none: a pid that is reused does not look alive.

    In seconds since the machine did: when its clock is set, every process seems to have started at
    another time of day, and all living drains would look dead.
    """
    try:
        process = psutil.Process(pid)
        is_alive = process.status() != psutil.STATUS_ZOMBIE
        return process.create_time() - psutil.boot_time() if is_alive else 0.0
    except psutil.NoSuchProcess:
        return 0.0
