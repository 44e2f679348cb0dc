"""The settings of the unattended deployment: how often Dagster looks, and when it warns."""

from datetime import date, timedelta
from pathlib import Path
from typing import Literal

from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.paths import project_dir, state_dir
from embed_pipeline.settings.spending import SpendingSettings
from embed_pipeline.settings.types import DAY, Day, Milliseconds, WholeNumber, setting


class Settings(SpendingSettings):
    """Every setting: those of the queue, and those of the Dagster deployment around it."""

    code_server: Literal["all", "drains"] = setting(
        "EMBED_CODE_SERVER",
        "What this code server brings: all, or on each further machine only drains.",
        "all or drains",
        "all",
    )
    embeddings_path: str | None = setting(
        "EMBED_EMBEDDINGS_PATH",
        "File that lists several embeddings; if empty embeddings.yaml, where that exists.",
        "the path of a YAML file without spaces around it; see docs/embeddings.md",
        pattern=r"^[^\s\x00-\x1f](?:[^\x00-\x1f]*[^\s\x00-\x1f])?$",
    )
    drains_at_once: WholeNumber = setting(
        "EMBED_DRAINS_AT_ONCE",
        "Drains that the backlog sensor of a code server lets run at once.",
        "a whole number from 1 to 1000; to stop all drains, pause the queue",
        2,
        ge=1,
        le=1_000,
    )
    standby: Literal["true", "false"] = setting(
        "EMBED_STANDBY",
        "Whether a drain is always there: vectors are made within half a second, at rest too.",
        "true or false",
        "false",
    )
    stop_grace: Milliseconds = setting(
        "EMBED_JOB_STOP_GRACE_MS",
        "Milliseconds that requests in flight may go on after a drain is told to stop.",
        "milliseconds from 0 to 80000 (after two minutes whoever stops a drain ends it by force)",
        timedelta(seconds=30),
        ge=timedelta(0),
        le=timedelta(seconds=80),
    )
    retention_days_completed: WholeNumber | None = setting(
        "EMBED_JOB_RETENTION_DAYS_COMPLETED",
        "Days after which completed jobs are deleted; empty is EMBED_JOB_RETENTION_DAYS.",
        "a whole number of days from 7 to 30",
        ge=7,
        le=30,
    )
    retention_days_failed: WholeNumber | None = setting(
        "EMBED_JOB_RETENTION_DAYS_FAILED",
        "Days after which failed jobs are deleted; empty is EMBED_JOB_RETENTION_DAYS.",
        "a whole number of days from 7 to 30",
        ge=7,
        le=30,
    )
    retention_days_cancelled: WholeNumber | None = setting(
        "EMBED_JOB_RETENTION_DAYS_CANCELLED",
        "Days after which cancelled jobs are deleted; empty is EMBED_JOB_RETENTION_DAYS.",
        "a whole number of days from 7 to 30",
        ge=7,
        le=30,
    )
    metrics_interval: Milliseconds = setting(
        "EMBED_METRICS_INTERVAL",
        "Milliseconds between two readings of the queue metrics.",
        "milliseconds from 5000 to 86400000 (a day)",
        timedelta(minutes=1),
        ge=timedelta(seconds=5),
        le=DAY,
    )
    reconcile_interval: Milliseconds = setting(
        "EMBED_RECONCILE_INTERVAL",
        "Milliseconds between two scans of all entities; 0 turns the scan off.",
        "0 (off) or milliseconds up to 86400000 (a day)",
        timedelta(minutes=1),
        ge=timedelta(0),
        le=DAY,
    )
    run_retention_days: WholeNumber = setting(
        "EMBED_RUN_RETENTION_DAYS",
        "Days after which finished Dagster runs are deleted; the history of metrics stays.",
        "a whole number of days from 1 to 3650",
        14,
        ge=1,
        le=3_650,
    )
    own_history_path: str | None = setting(
        "EMBED_HISTORY_PATH",
        "Folder or fsspec address of the exported history; empty is .embed_pipeline/history.",
        "a folder, or an address such as s3://bucket/folder without user and password",
        pattern=r"^[^\s@]+$",
    )
    history_from: Day = setting(
        "EMBED_HISTORY_FROM",
        "First day that the history may have; 'make setup' writes the day it was run.",
        "a day such as 2026-11-18, from 2026-01-01 on",
        date(2026, 1, 1),
        ge=date(2026, 1, 1),
        le=date(2999, 12, 31),
    )
    objective_age: Milliseconds = setting(
        "EMBED_OBJECTIVE_AGE_MS",
        "Milliseconds that the oldest job may wait before a check warns.",
        "milliseconds from 1000 to 2592000000 (30 days)",
        timedelta(minutes=15),
        ge=timedelta(seconds=1),
        le=30 * DAY,
    )
    objective_failed_percent: WholeNumber = setting(
        "EMBED_OBJECTIVE_FAILED_PERCENT",
        "Percent of jobs that may be failed before a check warns.",
        "a whole number from 0 to 100",
        1,
        ge=0,
        le=100,
    )
    objective_coverage_percent: WholeNumber = setting(
        "EMBED_OBJECTIVE_COVERAGE_PERCENT",
        "Percent of entities that must have a current vector, or a check warns.",
        "a whole number from 0 to 100",
        95,
        ge=0,
        le=100,
    )

    @property
    def retention(self) -> dict[JobStatus, timedelta]:
        """How long ended jobs of each state are kept."""
        days = {
            JobStatus.COMPLETED: self.retention_days_completed,
            JobStatus.FAILED: self.retention_days_failed,
            JobStatus.CANCELLED: self.retention_days_cancelled,
        }
        return {status: timedelta(days=own or self.retention_days) for status, own in days.items()}

    @property
    def history_path(self) -> str:
        """Where closed days of the history are kept; the same from every folder."""
        own = self.own_history_path
        # Queues that share a deployment share this setting, too.
        part = "" if self.queue == DEFAULT_QUEUE else f"/queues/{self.queue}"
        if own is None:
            return f"{state_dir() / 'history'}{part}"
        if "://" in own:
            return own.rstrip("/") + part
        return f"{project_dir() / Path(own).expanduser()}{part}"
