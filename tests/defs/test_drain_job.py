"""The drain as a Dagster job: its report, its budget, its one error, and how it stops."""

import asyncio
import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import dagster as dg
import pytest

from embed_pipeline.defs import drains
from embed_pipeline.defs.runs import MAX_RUNTIME_TAG, WORKER_TAG, is_gone
from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.errors import PROBE_WORD
from embed_pipeline.domain.job import JobStatus, NewJob
from tests.defs.conftest import Deployment, SensorUnderTest
from tests.support.dagster_results import figures, problem
from tests.support.drain_harness import until
from tests.support.openai_server import KEY, OpenAIServer, but_not_to_the_probe, failure
from tests.support.queue_harness import DIMENSIONS, MODEL

UIDS = ("a", "b", "c", "d", "e")
AT_ONCE_TO_THE_END = {"linger_seconds": 0}


@pytest.fixture
def signals_are_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the main thread can have handlers, and there the loop of the tests is running."""
    monkeypatch.setattr(drains, "stopped_by_signals", lambda *_: contextlib.nullcontext())


pytestmark = pytest.mark.usefixtures("signals_are_somebody_elses")


def report_of(instance: dg.DagsterInstance) -> tuple[dg.EventLogEntry, dict[str, Any]]:
    event = instance.get_latest_materialization_event(dg.AssetKey("embed_drains"))
    assert event is not None
    assert event.asset_materialization is not None
    metadata = event.asset_materialization.metadata
    return event, {name: value.value for name, value in metadata.items()}


async def test_completes_what_waits_and_reports_it(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs(*UIDS)

    found = figures(await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END))

    assert found["completed"] == 5
    assert found["failed_transient"] == 0
    assert found["requests"] == len(provider.requests) == 1
    assert found["ending"] == "nothing left to do"
    assert found["model"] == MODEL
    assert await deployment.queue.statuses(*UIDS) == [JobStatus.COMPLETED] * 5
    assert all([await deployment.queue.vector(uid) for uid in UIDS])


async def test_the_report_on_the_asset_outlives_the_run(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs("ada")

    result = await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END)

    deployment.instance.delete_run(result.run_id)
    event, found = report_of(deployment.instance)
    assert event.run_id == ""
    assert found["drain_completed"] == 1
    assert found["drain_run_id"] == result.run_id
    assert found["drain_config"]["linger_seconds"] == 0


async def test_the_run_says_which_process_works_and_how_long_it_may(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    result = await deployment.run("drain_embed_queue", {"max_minutes": 1, **AT_ONCE_TO_THE_END})

    run = deployment.instance.get_run_by_id(result.run_id)
    assert run is not None
    assert run.tags[WORKER_TAG]
    assert not is_gone(run.tags[WORKER_TAG])
    assert run.tags[MAX_RUNTIME_TAG] == str(60 + 300)


async def test_works_without_a_key_on_mock_vectors(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDDING_PROVIDER", "mock")
    await deployment.queue.put_entity("ada")
    await deployment.queue.admin.enqueue([NewJob("ada", f"mock-{MODEL}")])

    found = figures(await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END))

    vector = await deployment.queue.vector("ada")
    assert found["completed"] == 1
    assert vector is not None
    assert len(vector) == DIMENSIONS


async def test_ends_after_as_many_jobs_as_it_may(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs(*UIDS)

    found = figures(await deployment.run("drain_embed_queue", {"max_jobs": 2}))

    counts = await deployment.queue.admin.counts()
    assert found["completed"] == 2
    assert found["ending"] == "its budget is used"
    assert (counts[JobStatus.PENDING], counts[JobStatus.PROCESSING]) == (3, 0)


async def test_puts_no_more_texts_into_a_request_than_asked_for(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs(*UIDS)

    figures(await deployment.run("drain_embed_queue", {"jobs_per_request": 2, "max_jobs": 5}))

    sizes = sorted(len(request["input"]) for request in provider.requests)
    assert sizes == [1, 2, 2]


async def test_leases_no_more_jobs_at_once_than_asked_for(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs(*UIDS)

    figures(await deployment.run("drain_embed_queue", {"jobs_per_lease": 1, "max_jobs": 5}))

    assert [len(request["input"]) for request in provider.requests] == [1] * 5


async def test_a_global_fault_is_one_clear_error_and_costs_no_job_an_attempt(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs(*UIDS)
    provider.answer_with = lambda _: failure(401, f"Incorrect API key: {KEY}", "invalid_api_key")

    result = await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END)

    said = problem(result)
    assert not result.success
    assert "The drain gave up, nothing can work until somebody acts" in said
    assert "its jobs are given back" in said
    assert KEY not in str(deployment.instance.all_logs(result.run_id))
    assert (await deployment.queue.switch.state()).breaker.status is BreakerStatus.OPEN
    nodes = await deployment.queue.nodes()
    assert {(node["status"], node["attempts"]) for node in nodes} == {("pending", 0)}
    _, found = report_of(deployment.instance)
    assert found["drain_ending"] == "nothing can work until somebody acts"


async def test_m72_a_run_that_meets_an_outage_is_no_success_and_says_since_when(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs(*UIDS)
    provider.answer_with = lambda _: failure(503, "overloaded", None)

    result = await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END)

    breaker = (await deployment.queue.switch.state()).breaker
    assert not result.success
    assert f"The drain gave up, the provider is down ({breaker})" in problem(result)
    counts = await deployment.queue.admin.counts()
    assert (counts[JobStatus.PENDING], counts[JobStatus.FAILED]) == (len(UIDS), 0)
    assert {(await deployment.queue.job(uid)).attempts for uid in UIDS} == {0}


async def test_a_run_in_which_everything_failed_is_no_success_and_says_why(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs(*UIDS)
    provider.answer_with = but_not_to_the_probe(lambda _: failure(500, "out of memory", None))

    result = await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END)

    error = "InternalServerError: Error code: 500 - out of memory"
    said = f"completed nothing: 0 failed, 5 to be tried again (5 TRANSIENT: {error})"
    assert not result.success
    assert said in problem(result)
    event, _ = report_of(deployment.instance)
    assert event.asset_materialization is not None
    table = event.asset_materialization.metadata["errors"]
    assert isinstance(table, dg.TableMetadataValue)
    [row] = table.records
    assert row.data == {
        "attempts": 5,
        "category": "TRANSIENT",
        "failed": 0,
        "to be tried again": 5,
        "given back": 0,
        "example": error,
    }
    nodes = await deployment.queue.nodes()
    assert {(node["status"], node["attempts"]) for node in nodes} == {("pending", 1)}


async def test_after_a_drain_in_which_everything_failed_the_next_one_waits(
    deployment: Deployment,
    provider: OpenAIServer,
    sensor: Callable[..., SensorUnderTest],
) -> None:
    await deployment.queue.given_jobs("bad")
    provider.answer_with = lambda body: (
        None if body["input"] == [PROBE_WORD] else failure(400, "no such language", None)
    )
    failed = await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END)
    await deployment.queue.given_jobs("new")

    tick = await sensor("embed_backlog").tick()

    assert not failed.success
    # What the sensor embed_backlog does about it: there is nothing left to take back.
    assert await deployment.queue.admin.recover_owner(failed.run_id) == []
    assert tick.run_requests == []
    assert "the last drain failed; the next one starts in" in tick.skip_message


async def test_a_run_in_which_only_some_failed_is_a_success_that_says_why(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs("good", "bad")
    provider.answer_with = lambda body: (
        failure(400, "no such language", None) if "bad" in str(body["input"]) else None
    )

    found = figures(await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END))

    assert (found["completed"], found["failed_permanent"]) == (1, 1)
    assert [row["failed"] for row in found["errors"]] == [1]


async def test_another_secret_that_the_provider_repeats_is_kept_nowhere(
    deployment: Deployment, provider: OpenAIServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = "gateway-Zw83kQpLx0Vn"
    monkeypatch.setenv("GATEWAY_TOKEN", secret)
    await deployment.queue.given_jobs(*UIDS)
    provider.answer_with = lambda _: failure(401, f"{secret} has expired", "invalid_api_key")

    result = await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END)

    kept = f"{deployment.instance.all_logs(result.run_id)} {await deployment.queue.nodes()}"
    state = await deployment.queue.switch.state()
    event, _ = report_of(deployment.instance)
    assert secret not in f"{kept} {state} {event}"
    assert "*** has expired" in str(state)
    assert "*** has expired" in str(event)


async def test_a_missing_schema_is_one_clear_error(deployment: Deployment) -> None:
    await deployment.queue.run("DROP INDEX entity_embeddings IF EXISTS")

    said = problem(await deployment.run("drain_embed_queue", AT_ONCE_TO_THE_END))

    assert "embed-pipeline init" in said


async def test_an_interrupted_run_gives_back_what_it_has_not_begun(
    deployment: Deployment, provider: OpenAIServer
) -> None:
    await deployment.queue.given_jobs(*UIDS)
    program = """
import dagster as dg
from embed_pipeline.definitions import defs
config = {"jobs_per_request": 1, "requests_at_once": 1}
with dg.DagsterInstance.ephemeral() as instance:
    try:
        defs.resolve_job_def("drain_embed_queue").execute_in_process(
            instance=instance, run_config={"ops": {"drain": {"config": config}}}
        )
    except dg.DagsterExecutionInterruptedError:
        pass
    print(*(run.status.value for run in instance.get_runs()))
"""

    with provider.holding():
        worker = _start(program)
        await until(lambda: provider.requests or worker.poll() is not None)
        worker.send_signal(signal.SIGINT)
        # The stop is noticed before the answer comes: then no second request is sent.
        await asyncio.to_thread(_read_until, worker.stderr, b"Stopping: no new jobs")
    out, _ = await asyncio.to_thread(worker.communicate)

    nodes = await deployment.queue.nodes()
    # CANCELED is what Dagster makes of it when somebody has asked it for the termination.
    assert out.split() == [b"FAILURE"]
    assert len(provider.requests) == 1
    assert sorted((node["status"], node["attempts"]) for node in nodes) == [
        ("completed", 1),
        *[("pending", 0)] * 4,
    ]


def _start(program: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _read_until(stream: Any, words: bytes) -> None:
    for line in stream:
        if words in line:
            return
