"""What Dagster does not notice by itself: drains whose process is gone, and drains that fail."""

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import dagster as dg
import psutil
import pytest
from dagster._core.test_utils import freeze_time

from embed_pipeline.defs.runs import (
    CLOCK_JITTER,
    DRAIN_JOB,
    DRAIN_TAG,
    ENDED,
    MAX_RUNTIME_TAG,
    SLACK,
    UNDER_WAY,
    WORKER_TAG,
    fail_vanished,
    is_gone,
    know_drains,
    mark_worker,
    worker_mark,
)
from embed_pipeline.domain.pacing import Drains
from tests.support.origins import origin_at

HOST = socket.gethostname()
Status = dg.DagsterRunStatus


@pytest.fixture
def add(instance: dg.DagsterInstance) -> Callable[..., dg.DagsterRun]:
    """Puts a run into the instance as if it had come so far."""

    def added(
        status: Status, *, job: str = DRAIN_JOB, worker: str = "", repository: str = ""
    ) -> dg.DagsterRun:
        is_drain = "true" if job == DRAIN_JOB else ""
        wanted = {DRAIN_TAG: is_drain, WORKER_TAG: worker}
        tags = {name: value for name, value in wanted.items() if value}
        run = dg.DagsterRun(
            job_name=job,
            run_id=str(uuid.uuid4()),
            status=status,
            tags=tags,
            remote_job_origin=origin_at(repository, job) if repository else None,
        )
        return instance.add_run(run)

    return added


def me(*, started_later: float = 0.0) -> str:
    host, pid, started = worker_mark(os.getpid()).split(":")
    return f"{host}:{pid}:{float(started) + started_later:.2f}"


def somebody_dead() -> str:
    """The mark of a process that has ended and left nothing behind."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    mark = worker_mark(process.pid)
    process.wait()
    return mark


class TestIsGone:
    def test_a_live_process_is_not(self) -> None:
        assert not is_gone(me())

    def test_a_clock_that_is_corrected_does_not_kill_it(self) -> None:
        assert not is_gone(me(started_later=CLOCK_JITTER - 1))

    @pytest.mark.parametrize("seconds", [3600, -3600])
    def test_a_clock_that_was_set_does_not_kill_it(
        self, seconds: int, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        mark, boot = me(), psutil.boot_time()
        # The kernel gives the start of a process in ticks since boot, and boot in time of day.
        monkeypatch.setattr("psutil._psplatform.boot_time", lambda: boot + seconds)

        assert not is_gone(mark)

    def test_a_dead_one_is(self) -> None:
        assert is_gone(somebody_dead())

    def test_one_that_nobody_has_waited_for_is(self) -> None:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
        mark = worker_mark(process.pid)
        process.kill()
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)

        found = is_gone(mark)

        process.communicate()
        assert found

    def test_another_process_under_its_number_does_not_look_alive(self) -> None:
        assert is_gone(me(started_later=-1000))

    def test_of_another_machine_nothing_is_known(self) -> None:
        assert not is_gone(f"another-{HOST}:1:0.0")

    @pytest.mark.parametrize(
        "worker",
        [
            "",
            HOST,
            f"{HOST}:",
            f"{HOST}:x:1.0",
            f"{HOST}:-1:1.0",
            f"{HOST}:1",
            f"{HOST}:1:x",
            f"{HOST}:{10**30}:1.0",
        ],
    )
    def test_a_mark_that_says_nothing_proves_nothing(self, worker: str) -> None:
        assert not is_gone(worker)


class TestFailVanished:
    def test_a_drain_whose_process_is_gone_has_failed(
        self, instance: dg.DagsterInstance, add: Callable[..., dg.DagsterRun]
    ) -> None:
        dead = somebody_dead()
        gone = [add(status, worker=dead).run_id for status in (Status.STARTED, Status.CANCELING)]

        assert sorted(fail_vanished(instance)) == sorted(gone)

        assert {run.status for run in instance.get_runs()} == {Status.FAILURE}
        assert fail_vanished(instance) == []

    def test_everything_else_is_left_alone(
        self, instance: dg.DagsterInstance, add: Callable[..., dg.DagsterRun]
    ) -> None:
        dead = somebody_dead()
        add(Status.STARTED, worker=me())
        add(Status.STARTED)
        add(Status.STARTED, worker=f"another-{HOST}:1:0.0")
        add(Status.SUCCESS, worker=dead)
        add(Status.STARTED, worker=dead, job="somebody_elses_job")
        before = {run.run_id: run.status for run in instance.get_runs()}

        assert fail_vanished(instance) == []

        assert {run.run_id: run.status for run in instance.get_runs()} == before

    def test_the_drains_of_another_deployment_are_left_to_it(
        self, instance: dg.DagsterInstance, add: Callable[..., dg.DagsterRun]
    ) -> None:
        dead = somebody_dead()
        own = add(Status.STARTED, worker=dead, repository="__repository__@here")
        add(Status.STARTED, worker=dead, repository="__repository__@there")

        assert fail_vanished(instance, "__repository__@here") == [own.run_id]

    @pytest.mark.parametrize(("minutes", "has_failed"), [(2, False), (4, True)])
    def test_a_drain_that_never_said_who_works_on_it_is_given_up_after_a_while(
        self,
        instance: dg.DagsterInstance,
        add: Callable[..., dg.DagsterRun],
        minutes: int,
        has_failed: bool,
    ) -> None:
        run = add(Status.STARTING)
        with freeze_time(datetime.now(UTC) - timedelta(minutes=minutes)):
            started = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name)
            instance.report_dagster_event(started, run.run_id)

        assert fail_vanished(instance) == [run.run_id] * has_failed

    def test_a_marked_worker_is_alive(
        self, instance: dg.DagsterInstance, add: Callable[..., dg.DagsterRun]
    ) -> None:
        run_id = add(Status.STARTED).run_id

        mark_worker(instance, run_id, longest=timedelta(minutes=15))

        run = instance.get_run_by_id(run_id)
        assert run is not None
        assert run.tags[WORKER_TAG] == me()
        assert run.tags[MAX_RUNTIME_TAG] == "900"


class TestKnowDrains:
    def test_counts_drains_that_are_under_way(
        self, instance: dg.DagsterInstance, add: Callable[..., dg.DagsterRun]
    ) -> None:
        for status in (Status.NOT_STARTED, Status.STARTING, Status.STARTED, Status.CANCELING):
            add(status)
        for status in ENDED:
            add(status)
        add(Status.STARTED, job="another_job")

        assert know_drains(instance).running == 4
        # Dagster queues no run without a code location, so that one cannot be added here.
        assert Status.QUEUED in UNDER_WAY

    @pytest.mark.parametrize(
        ("ended", "failed"),
        [
            ([], 0),
            ([Status.SUCCESS], 0),
            ([Status.FAILURE], 1),
            ([Status.SUCCESS, Status.FAILURE, Status.FAILURE], 2),
            ([Status.FAILURE, Status.SUCCESS], 0),
            ([Status.FAILURE, Status.CANCELED, Status.FAILURE], 1),
            ([Status.FAILURE, Status.STARTED], 1),
            ([Status.FAILURE] * 9, 6),
        ],
    )
    def test_counts_the_failures_since_the_last_success(
        self,
        instance: dg.DagsterInstance,
        add: Callable[..., dg.DagsterRun],
        ended: list[Status],
        failed: int,
    ) -> None:
        for status in ended:
            add(status)

        found = know_drains(instance)

        assert found.failed_in_a_row == failed
        assert (found.since_failure is None) == (failed == 0)

    @pytest.mark.parametrize(("minutes", "ending"), [(1, 0), (59, 0), (59.8, 1), (61, 1)])
    def test_knows_which_have_nearly_used_their_time(
        self,
        instance: dg.DagsterInstance,
        add: Callable[..., dg.DagsterRun],
        minutes: float,
        ending: int,
    ) -> None:
        run = add(Status.STARTING)
        with freeze_time(datetime.now(UTC) - timedelta(minutes=minutes)):
            started = dg.DagsterEvent(dg.DagsterEventType.RUN_START.value, run.job_name)
            instance.report_dagster_event(started, run.run_id)
        mark_worker(instance, run.run_id, longest=timedelta(hours=1) + SLACK)
        add(Status.STARTING)

        found = know_drains(instance)

        assert (found.running, found.ending) == (2, ending)

    def test_knows_how_long_ago_the_last_one_failed(
        self, instance: dg.DagsterInstance, add: Callable[..., dg.DagsterRun]
    ) -> None:
        instance.report_run_failed(add(Status.STARTED))
        [record] = instance.get_run_records()

        found = know_drains(instance).since_failure

        assert found is not None
        longest = datetime.now(UTC) - record.update_timestamp.replace(tzinfo=UTC)
        assert timedelta(0) <= found <= longest

    def test_leaves_out_those_of_other_code_servers(
        self, instance: dg.DagsterInstance, add: Callable[..., dg.DagsterRun]
    ) -> None:
        for location, statuses in (
            ("here", [Status.STARTED, Status.SUCCESS]),
            ("there", [Status.STARTED, Status.STARTED, Status.FAILURE]),
        ):
            for status in statuses:
                add(status, repository=f"__repository__@{location}")

        here, there, all_ = (
            know_drains(instance, repository)
            for repository in ("__repository__@here", "__repository__@there", None)
        )

        assert (here.running, there.running, all_.running) == (1, 2, 3)
        assert (here.failed_in_a_row, there.failed_in_a_row) == (0, 1)

    def test_an_instance_without_drains(self, instance: dg.DagsterInstance) -> None:
        assert know_drains(instance) == Drains()
