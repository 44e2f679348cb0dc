"""A reading of the queue per tick, without a run, and the news about the checks."""

import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from embed_pipeline.defs.overview import Point, drawn
from embed_pipeline.defs.renewal import NEWS_EVERY
from embed_pipeline.domain.checks import QUALITY
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.health import CHECKS, Subject
from embed_pipeline.domain.holds import LONGEST_HOLD
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.rate_window import RateLimits
from tests.defs.conftest import Deployment, Now, SensorUnderTest
from tests.defs.test_assets_and_checks import SVG, checked, labels, materialized, picture
from tests.support.queue_harness import DIMENSIONS, LEASE, MODEL, Neo4jUnderTest

ONE_TICK = timedelta(minutes=1)


@pytest.fixture
def metrics(sensor: Callable[..., SensorUnderTest], now: Now) -> SensorUnderTest:
    return sensor("queue_metrics")


def figures(data: Any) -> dict[str, Any]:
    """The metadata of the one materialization of a tick."""
    [event] = [event for event in data.asset_events if isinstance(event, dg.AssetMaterialization)]
    assert event.asset_key == dg.AssetKey("embed_queue_metrics")
    return {name: entry.value for name, entry in event.metadata.items()}


def checks(data: Any) -> dict[str, dg.AssetCheckEvaluation]:
    found = [e for e in data.asset_events if isinstance(e, dg.AssetCheckEvaluation)]
    assert len({event.check_name for event in found}) == len(found)
    return {event.check_name: event for event in found}


async def test_every_tick_adds_one_reading_and_starts_no_run(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    for _ in range(3):
        data = await metrics.tick()

        assert figures(data)["jobs"] == 0
        assert data.run_requests == []
    assert deployment.instance.get_runs_count() == 0


async def test_every_figure_is_a_number_that_dagster_can_plot(metrics: SensorUnderTest) -> None:
    found = figures(await metrics.tick())

    texts = {name for name, value in found.items() if type(value) not in (int, float)}
    assert texts == {"chart", "model"}


async def test_the_last_hour_is_drawn_above_the_figures(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    for count in (0, 3, 4):
        await deployment.queue.given_jobs(*(f"e{number}" for number in range(count)))
        data = await metrics.tick()

    [event] = [each for each in data.asset_events if isinstance(each, dg.AssetMaterialization)]
    assert next(iter(event.metadata)) == "chart"
    chart = picture(dict(event.metadata))
    assert labels(chart)[0] == "jobs that wait: 4, at most 4"
    waiting = next(p.get("d") for p in chart.iter(f"{SVG}path") if p.get("fill") == "none")
    # The higher of the first two, which is 3, and the last one, which is 4.
    assert re.fullmatch(r"M-?\d+ 42l-?\d+-18", str(waiting))


@pytest.mark.parametrize("used", [0.0, 80.0])
def test_a_budget_is_drawn_beside_them_where_one_is_used(used: float) -> None:
    points = [Point(60.0 * minute, {"budget_used_percent": used}) for minute in range(3)]

    drawing = " ".join(labels(picture(drawn(points))))

    assert ("budget used, percent: 80, at most 80" in drawing) is (used > 0)


async def test_materialize_draws_what_was_read_before_too(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    await deployment.queue.given_jobs("ada", "bob")
    await metrics.tick()
    await deployment.queue.run("MATCH (j:EmbedJob) DETACH DELETE j")

    chart = picture(await materialized(deployment, "embed_queue_metrics"))

    assert labels(chart)[0] == "jobs that wait: 0, at most 2"


async def test_the_figures_agree_with_the_graph(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    for status in set(JobStatus) - {JobStatus.PENDING}:
        await deployment.queue.in_state(f"a {status}", status)
    await deployment.queue.given_jobs("pending", "one more")

    found = figures(await metrics.tick())

    rows = await deployment.queue.run(
        "MATCH (job:EmbedJob) RETURN job.status AS status, count(*) AS jobs"
    )
    in_graph = {row["status"]: row["jobs"] for row in rows}
    assert {status.value: found[status.value] for status in JobStatus} == in_graph
    assert in_graph["pending"] == 2
    assert found["jobs"] == 6
    assert found["failed_permanent"] == 1
    assert found["model"] == MODEL


async def test_m35_m54_the_counters_are_in_the_reading(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    await given_one_of_each_event(deployment.queue)

    found = figures(await metrics.tick())

    assert {name: found[f"{name}_total"] for name in EVENTS} == EVENTS


EVENTS = {
    "recovered": 2,
    "exhausted": 1,
    "fenced": 1,
    "released": 1,
    "retried": 1,
    "heartbeats_failed": 3,
}


async def given_one_of_each_event(queue: Neo4jUnderTest) -> None:
    await queue.put_entity("poison")
    await queue.admin.enqueue([NewJob("poison", MODEL)], max_attempts=1)
    await queue.lease(owner="dead")
    [slow] = await queue.leased("slow", owner="slow")
    queue.clock.advance(LEASE + timedelta(seconds=1))
    await queue.jobs.recover_expired(limit=10, grace=timedelta(0))
    await queue.complete(slow.lease)
    await queue.leased("released", owner="stopped")
    await queue.admin.release_owner("stopped")
    [retried] = (await queue.lease(limit=1)).jobs
    await queue.fail(retried.lease, category=ErrorCategory.TRANSIENT)
    await queue.admin.count({"heartbeats_failed": 3})


async def test_m91_the_first_tick_reports_every_check_also_what_cannot_be_judged_yet(
    metrics: SensorUnderTest,
) -> None:
    data = await metrics.tick()

    found = checks(data)
    assert sorted(found) == sorted(check.name for check in CHECKS)
    assert all(verdict.passed for verdict in found.values())
    assert found["recoveries_ran"].description == (
        "none has run yet; the sensor stale_leases should be on"
    )
    assert data.skip_message == "all is well"


async def test_m91_after_a_run_of_the_checks_the_next_reading_shows_every_check(
    deployment: Deployment, metrics: SensorUnderTest, now: Now
) -> None:
    await metrics.tick()
    assert checks(await metrics.tick()) == {}
    await checked(deployment)

    assert sorted(checks(await metrics.tick())) == sorted(check.name for check in CHECKS)
    assert checks(await metrics.tick()) == {}


async def test_m91_after_materialize_the_next_reading_shows_the_checks_of_that_asset(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    await metrics.tick()
    await materialized(deployment, "embed_queue_metrics")

    found = checks(await metrics.tick())

    of_queue = [check.name for check in CHECKS if check.subject is Subject.QUEUE]
    assert sorted(found) == sorted(of_queue)


async def test_m91_a_message_is_renewed_also_where_the_verdict_is_the_same(
    deployment: Deployment, metrics: SensorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_OBJECTIVE_FAILED_PERCENT", "100")
    first = checks(await metrics.tick())["few_failed_jobs"]
    for uid in ("ada", "bob", "cyd"):
        await deployment.queue.in_state(uid, JobStatus.FAILED)

    second = checks(await metrics.tick())["few_failed_jobs"]

    assert (first.description or "").startswith("0 of 0 ended jobs failed")
    assert (second.description or "").startswith("3 of 3 ended jobs failed (3 PERMANENT)")


async def test_m92_the_reading_has_a_table_of_what_has_failed_today(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    for uid in ("ada", "bob"):
        await deployment.queue.in_state(uid, JobStatus.FAILED)
    job = await deployment.queue.job("bob")

    [event] = [e for e in (await metrics.tick()).asset_events if "jobs" in e.metadata]

    table = event.metadata["failed_today"]
    assert isinstance(table, dg.TableMetadataValue)
    [row] = [record.data for record in table.records]
    assert (row["jobs"], row["category"]) == (2, "PERMANENT")
    assert (row["entity"], row["job"], row["message"]) == ("bob", job.id, job.error)
    assert f"job_ids: [{job.id}], categories: [PERMANENT]" in str(row["what to do"])
    assert list(event.metadata)[:5] == [
        "chart",
        "failed_today",
        "pending",
        "oldest_pending_seconds",
        "throughput_per_minute",
    ]


async def test_m89_entities_and_index_are_observed_when_something_about_them_has_changed(
    deployment: Deployment, metrics: SensorUnderTest, sensor: Callable[..., SensorUnderTest]
) -> None:
    await deployment.queue.in_state("ada", JobStatus.COMPLETED)
    await sensor("reconcile_entities").tick()

    def seen(data: Any) -> dict[str, dict[str, Any]]:
        events = [e for e in data.asset_events if isinstance(e, dg.AssetObservation)]
        return {
            e.asset_key.to_user_string(): {n: v.value for n, v in e.metadata.items()}
            for e in events
        }

    first, second = seen(await metrics.tick()), seen(await metrics.tick())

    assert first["graph_entities"] == {"entities": 1, "embeddable": 1}
    assert first["entity_vector_index"] == {
        "name": "entity_embeddings",
        "dimensions": DIMENSIONS,
        "similarity": "cosine",
        "state": "ONLINE",
        "vectors": 1,
    }
    assert second == {}


async def test_after_a_scan_the_embeddings_are_judged_too(
    metrics: SensorUnderTest, sensor: Callable[..., SensorUnderTest]
) -> None:
    await metrics.tick()
    await sensor("stale_leases").tick()
    await sensor("reconcile_entities").tick()

    news = checks(await metrics.tick())

    judged = {check.name for check in CHECKS if check.subject is Subject.EMBEDDINGS}
    # Measured once a day, not by the scan.
    judged -= {QUALITY.name}
    assert {*judged, "recoveries_ran"} <= set(news)


async def test_a_check_is_reported_again_when_its_verdict_changes(
    deployment: Deployment, metrics: SensorUnderTest, now: Now
) -> None:
    await metrics.tick()
    now.advance(ONE_TICK)
    assert checks(await metrics.tick()) == {}

    await deployment.queue.switch.pause(by="operator")
    closed = await metrics.tick()
    still_closed = await metrics.tick()
    await deployment.queue.switch.resume()
    opened = await metrics.tick()

    [(name, verdict)] = checks(closed).items()
    assert (name, verdict.passed) == ("queue_open", False)
    assert verdict.severity is dg.AssetCheckSeverity.WARN
    assert verdict.description == "paused by operator; the job resume_queue gives out jobs again"
    assert closed.skip_message == still_closed.skip_message == "checks failing: queue_open"
    assert checks(still_closed) == {}
    assert checks(opened)["queue_open"].passed


async def test_a_long_pause_of_the_provider_is_reported_and_drawn(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    await metrics.tick()
    await deployment.queue.limiter(RateLimits()).hold(
        timedelta(days=1), owner="run-7", said="slow [down](http://a)"
    )

    data = await metrics.tick()

    [(name, verdict)] = checks(data).items()
    assert (name, verdict.passed) == ("no_long_hold", False)
    assert verdict.severity is dg.AssetCheckSeverity.WARN
    assert "told run-7 of queue default to wait until" in (verdict.description or "")
    assert r"slow \[down\](http://a)" in (verdict.description or "")
    assert data.skip_message == "checks failing: no_long_hold"
    assert 0 < figures(data)["hold_seconds"] <= LONGEST_HOLD.total_seconds()


async def test_a_pause_that_turns_into_a_fault_is_news(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    await deployment.queue.switch.pause(by="operator")
    await metrics.tick()

    await deployment.queue.switch.open_breaker("the key is wrong")
    [verdict] = checks(await metrics.tick()).values()

    assert verdict.severity is dg.AssetCheckSeverity.ERROR
    assert "the key is wrong" in (verdict.description or "")


async def test_what_has_not_changed_is_reported_again_after_an_hour(
    metrics: SensorUnderTest, now: Now
) -> None:
    everything = checks(await metrics.tick())
    now.advance(NEWS_EVERY - ONE_TICK)
    before = checks(await metrics.tick())
    now.advance(ONE_TICK)
    after = checks(await metrics.tick())

    assert before == {}
    assert sorted(after) == sorted(everything)


async def test_without_the_schema_nothing_is_measured_and_no_check_of_the_queue_passes(
    deployment: Deployment, metrics: SensorUnderTest
) -> None:
    await metrics.tick()
    await deployment.queue.run("DROP INDEX embed_pending_urgency")

    data = await metrics.tick()

    assert not [e for e in data.asset_events if isinstance(e, dg.AssetMaterialization)]
    news = checks(data)
    assert news["schema_present"].description == (
        "the schema lacks embed_pending_urgency; run 'embed-pipeline init'"
    )
    of_queue = [check.name for check in CHECKS if check.subject is Subject.QUEUE]
    assert {name: news[name].passed for name in of_queue} == dict.fromkeys(of_queue, False)
    assert not any(verdict.passed for verdict in news.values())


async def test_a_server_that_is_away_is_an_error_that_says_so(
    metrics: SensorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:9")

    with pytest.raises(dg.Failure) as caught:
        await metrics.tick()

    assert "Cannot reach Neo4j at 127.0.0.1:9" in (caught.value.description or "")


@pytest.mark.parametrize(("interval", "pause"), [("5000", 3), ("60000", 58)])
def test_the_interval_of_the_settings_paces_the_readings(
    sensor: Callable[..., SensorUnderTest], interval: str, pause: int
) -> None:
    definition = sensor("queue_metrics", EMBED_METRICS_INTERVAL=interval).definition

    assert definition.minimum_interval_seconds == pause
    assert definition.default_status is dg.DefaultSensorStatus.RUNNING
