"""The whole deployment at work: nothing is done by hand but what an operator would do."""

import os
import signal
import sqlite3
import time
from contextlib import closing
from pathlib import Path

import psutil
import pytest

from tests.support.dagster_deployment import Deployment, processes_of, worker_pid
from tests.support.dagster_graphql import Check, Run, Tick
from tests.support.openai_server import OpenAIServer

DRAIN = "drain_embed_queue"
WATCH = "watch_orphans"
METRICS = "embed_queue_metrics"
EMBEDDINGS = "entity_embeddings"
TICKS = 10


@pytest.fixture
def provider(dagster: Deployment) -> OpenAIServer:
    return dagster.provider


def daemon_of(dagster: Deployment) -> psutil.Process:
    """The process that ticks sensors and starts queued runs."""
    group = [psutil.Process(pid) for pid in processes_of(dagster.dagster.group)]
    [daemon] = [one for one in group if "dagster._daemon" in one.cmdline()]
    return daemon


def suspend_daemon(dagster: Deployment) -> None:
    """Stop it where it stands, but not inside a write: Dagster's SQLite would stay locked."""
    daemon = daemon_of(dagster)
    daemon.suspend()
    while is_locked(dagster.home):
        daemon.resume()
        time.sleep(0.05)
        daemon.suspend()


def is_locked(home: Path) -> bool:
    """Say whether somebody is writing to a database of Dagster."""
    for file in home.rglob("*.db"):
        with closing(sqlite3.connect(file, timeout=0)) as database:
            try:
                database.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            database.rollback()
    return False


def all_checks(dagster: Deployment) -> dict[str, Check]:
    found = [dagster.ui.checks(asset) for asset in dagster.ui.assets()]
    return {name: check for checks in found for name, check in checks.items()}


def wait_until_measured(dagster: Deployment, *, completed: int) -> None:
    dagster.wait_until(
        lambda: [
            point
            for point in dagster.ui.materializations(METRICS, limit=1)
            if point.metadata["completed"] == completed
        ],
        f"the latest metrics say {completed} completed",
    )


def failed_drains(dagster: Deployment) -> list[Run]:
    return dagster.ui.runs(DRAIN, statuses=["FAILURE"])


def test_a_graph_written_by_others_is_embedded_measured_and_checked(dagster: Deployment) -> None:
    since = time.time()

    dagster.graph.load(30)
    wait_until_measured(dagster, completed=30)
    dagster.graph.load(10, skip=30)
    wait_until_measured(dagster, completed=40)

    assert dagster.graph.counts() == {"completed": 40}
    assert dagster.graph.embedded() == 40
    points = [point for point in dagster.ui.materializations(METRICS) if point.at > since]
    completed = [point.metadata["completed"] for point in reversed(points)]
    assert len(completed) >= 3
    assert completed == sorted(completed)
    drains = [run for run in dagster.ui.runs(DRAIN) if run.created > since]
    assert {run.tags.get("dagster/sensor_name") for run in drains} == {"embed_backlog"}
    dagster.wait_until(
        lambda: dagster.latest_skip_reason("queue_metrics") == "all is well", "all is well"
    )
    checks = all_checks(dagster)
    assert {"queue_open", "recoveries_ran", "coverage_above_floor"} <= checks.keys()
    # The gates of a cut-over are looked at when there is one.
    looked_at = {name: check for name, check in checks.items() if not name.startswith("cutover_")}
    assert [name for name, check in looked_at.items() if not check.passed] == []


@pytest.mark.proof
def test_an_idle_deployment_starts_no_drains_and_still_measures(dagster: Deployment) -> None:
    dagster.graph.load(5)
    dagster.wait_until_completed(5)
    dagster.wait_until_idle()
    drains = dagster.ui.runs(DRAIN)
    since = dagster.ui.sensor("embed_backlog").ticks[0].at
    measured = len(dagster.ui.materializations(METRICS))

    def later_ticks() -> list[Tick]:
        ticks = dagster.ui.sensor("embed_backlog", ticks=2 * TICKS, after=since).ticks
        ended = [tick for tick in ticks if tick.status != "STARTED"]
        return ended if len(ended) >= TICKS else []

    ticks = dagster.wait_until(later_ticks, f"the sensor has ticked {TICKS} times")

    assert {tick.status for tick in ticks} == {"SKIPPED"}
    assert {tick.skip_reason for tick in ticks} == {"the queue is empty"}
    assert dagster.ui.runs(DRAIN) == drains
    assert len(dagster.ui.materializations(METRICS)) >= measured + 3


def test_m89_m90_materialize_embeds_and_the_start_was_one_run_of_recovery(
    dagster: Deployment,
) -> None:
    dagster.wait_until(lambda: dagster.ui.runs("recover_stale_leases"), "the start is noticed")
    dagster.wait_until_idle()
    recoveries = dagster.ui.runs("recover_stale_leases")
    assert [run.tags["embed_pipeline/recovery_because"] for run in recoveries] == [
        "the deployment has started"
    ]
    assert [run.status for run in recoveries] == ["SUCCESS"]
    dagster.graph.load(10)

    run = dagster.wait_for_run(dagster.ui.materialize(EMBEDDINGS))

    assert run.status == "SUCCESS", dagster.ui.errors(run.id)
    assert run.tags["embed_pipeline/drain"] == "true"
    assert dagster.graph.embedded() == 10
    [made] = [m for m in dagster.ui.materializations(EMBEDDINGS, limit=5) if m.run_id == run.id]
    assert made.metadata["coverage_percent"] == 100.0
    assert "entities_changed" in made.metadata
    dagster.wait_until(
        lambda: all(check.at > made.at for check in dagster.ui.checks(EMBEDDINGS).values()),
        "the next reading shows every check of the asset",
    )


def test_the_run_of_the_pruning_knows_which_code_location_it_is_from(dagster: Deployment) -> None:
    dagster.work("prune_old_runs", {"ops": {"prune_runs": {"config": {"days": 3_650}}}})


def test_m49_a_terminated_drain_leaves_nothing_owned_and_the_next_one_goes_on(
    dagster: Deployment, provider: OpenAIServer
) -> None:
    dagster.wait_until_idle()
    slow = {"jobs_per_request": 5, "requests_at_once": 2, "linger_seconds": 120}
    with provider.holding():
        run_id = dagster.ui.launch(DRAIN, {"ops": {"drain": {"config": slow}}})
        dagster.wait_for_run(run_id, "STARTED")
        dagster.graph.load(40)
        assert dagster.wait_for_holder().id == run_id
        assert dagster.project.run("pause").returncode == 0
        dagster.ui.terminate(run_id)
        dagster.wait_until(
            lambda: dagster.graph.counts() == {"processing": 10, "pending": 30},
            "all but the requests in flight is given back",
        )
    ended = dagster.wait_for_run(run_id)

    assert ended.status == "CANCELED"
    assert dagster.graph.owners() == set()
    assert dagster.graph.counts() == {"completed": 10, "pending": 30}
    given_back = [job for job in dagster.graph.jobs() if job["status"] == "pending"]
    assert {job["attempts"] for job in given_back} == {0}

    assert dagster.project.run("resume").returncode == 0
    dagster.wait_until_completed(40)
    assert dagster.graph.embedded() == 40


def test_jobs_of_a_killed_run_worker_complete_with_nothing_done_by_hand(
    dagster: Deployment, provider: OpenAIServer
) -> None:
    with provider.holding():
        dagster.graph.load(20)
        run = dagster.wait_for_holder()
        os.kill(worker_pid(run), signal.SIGKILL)

    dagster.wait_until_completed(20)

    assert dagster.graph.embedded() == 20
    assert dagster.wait_for_run(run.id).status == "FAILURE"


@pytest.mark.proof
def test_a_refused_key_fails_no_job_and_work_goes_on_when_it_is_mended(
    dagster: Deployment, provider: OpenAIServer
) -> None:
    known = failed_drains(dagster)
    right, provider.key = provider.key, "another-key"
    try:
        dagster.graph.load(20)
        dagster.wait_until(lambda: failed_drains(dagster) != known, "a drain has failed")
        dagster.wait_until(
            lambda: "breaker open since" in dagster.latest_skip_reason("embed_backlog"),
            "the sensor says why nothing is started",
        )
    finally:
        provider.key = right

    assert dagster.graph.counts() == {"pending": 20}
    assert dagster.graph.breaker() == "open"
    failed = failed_drains(dagster)[0]
    [error] = dagster.ui.errors(failed.id)
    assert "401 - Incorrect API key provided" in error
    assert right not in error

    dagster.work("resume_queue", {"ops": {"open_queue": {"config": {"close_breaker": True}}}})
    dagster.wait_until_completed(20)
    assert dagster.graph.embedded() == 20


@pytest.mark.proof
def test_m4_m26_after_a_power_loss_all_completes_unless_recovery_is_off(
    dagster: Deployment, provider: OpenAIServer
) -> None:
    with provider.holding():
        dagster.graph.load(20)
        run = dagster.wait_for_holder()
        dagster.kill()

    restarted = time.time()
    dagster.start(EMBED_JOB_RECOVERY_INTERVAL="0", EMBED_DRAINS_AT_ONCE="1")
    assert dagster.wait_for_run(run.id).status == "FAILURE"
    assert dagster.ui.sensor("stale_leases").status == "STOPPED"
    assert dagster.ui.sensor("stale_leases", after=restarted).ticks == []
    assert dagster.graph.counts()["processing"] > 0

    dagster.kill()
    dagster.graph.run("MATCH (j:EmbedJob {status: 'processing'}) SET j.lock_until = 1")
    dagster.start(EMBED_DRAINS_AT_ONCE="1")
    dagster.wait_until_completed(20)
    assert dagster.graph.embedded() == 20


def test_a_drain_is_one_process_so_there_is_no_step_to_kill_apart_from_it(
    dagster: Deployment,
) -> None:
    with dagster.provider.holding():
        dagster.graph.load(5)
        worker = psutil.Process(worker_pid(dagster.wait_for_holder()))
        children = [" ".join(child.cmdline()) for child in worker.children(recursive=True)]

    # Only those that copy its output, and look whether it is still there.
    assert [line for line in children if "compute_logs" not in line and WATCH not in line] == []

    dagster.wait_until_completed(5)


@pytest.mark.proof
def test_i15_a_drain_that_a_power_loss_left_queued_is_started_afterwards(
    dagster: Deployment,
) -> None:
    dagster.wait_until_idle()
    suspend_daemon(dagster)
    queued = dagster.ui.launch(DRAIN)
    dagster.graph.load(20)
    assert dagster.ui.run(queued).status == "QUEUED"

    dagster.kill()
    dagster.start(EMBED_DRAINS_AT_ONCE="1")
    dagster.wait_until_completed(20)

    assert dagster.wait_for_run(queued).status == "SUCCESS"
