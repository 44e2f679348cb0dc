"""The scan by itself: finds whatever anybody wrote, in steps, and says what it found."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import dagster as dg
import pytest

from embed_pipeline.defs import upkeep
from embed_pipeline.defs.renewal import NEWS_EVERY
from embed_pipeline.domain.coverage import CoverageReport
from embed_pipeline.domain.errors import UnreachableError
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.operations.scan import Scan
from embed_pipeline.store.scan import PAGE, Neo4jReconciler
from tests.defs.conftest import Deployment, Now, SensorUnderTest
from tests.support.queue_harness import MODEL, Neo4jUnderTest

LARGE = 2 * PAGE + 1


@pytest.fixture
def scan(sensor: Callable[..., SensorUnderTest], now: Now) -> SensorUnderTest:
    return sensor("reconcile_entities")


@pytest.fixture
def page_by_page(
    sensor: Callable[..., SensorUnderTest], monkeypatch: pytest.MonkeyPatch, now: Now
) -> SensorUnderTest:
    """A scan that reads one page per tick, as if each took all the time there is."""
    monkeypatch.setattr(upkeep, "LONGEST_STEP", timedelta(microseconds=1))
    return sensor("reconcile_entities")


async def given_large_graph(queue: Neo4jUnderTest) -> None:
    await queue.run(
        """
        UNWIND range(1, $count) AS number
        CREATE (:Entity {name: 'e' + number, entityType: 'type ' + number % 3, version: 1,
          observations: ['text']})
        """,
        count=LARGE,
    )


def events(data: Any) -> list[dg.AssetMaterialization]:
    assert all(isinstance(event, dg.AssetMaterialization) for event in data.asset_events)
    return list(data.asset_events)


async def kept(deployment: Deployment, model: str = MODEL) -> CoverageReport | None:
    return await deployment.queue.queue.reconciler(model).last()


async def test_entities_written_with_plain_cypher_are_found_and_enqueued(
    deployment: Deployment, scan: SensorUnderTest
) -> None:
    await deployment.queue.in_state("old", JobStatus.COMPLETED)
    await deployment.queue.put_entity("ada")
    await deployment.queue.put_entity("bob")

    data = await scan.tick()

    assert data.skip_message == "3 entities read, 2 jobs enqueued; 33.33 % are current"
    assert data.run_requests == []
    assert await deployment.queue.statuses("ada", "bob") == [JobStatus.PENDING] * 2


async def test_the_tick_says_what_its_percentage_leaves_out(
    deployment: Deployment, scan: SensorUnderTest
) -> None:
    await deployment.queue.run("CREATE (:Entity {name: true})")
    alone = await scan.tick()
    await deployment.queue.in_state("old", JobStatus.COMPLETED)

    beside = await scan.tick()

    assert alone.skip_message == (
        "1 entities read, 0 jobs enqueued; nothing to embed (1 not embeddable)"
    )
    assert beside.skip_message == (
        "2 entities read, 0 jobs enqueued; 100.00 % are current (besides 1 not embeddable)"
    )


async def test_a_changed_text_is_found_too(deployment: Deployment, scan: SensorUnderTest) -> None:
    await deployment.queue.in_state("ada", JobStatus.COMPLETED)
    await deployment.queue.put_entity("ada", "another text")

    await scan.tick()

    assert await deployment.queue.statuses("ada") == [JobStatus.PENDING]


async def test_the_result_is_kept_and_emitted(
    deployment: Deployment, scan: SensorUnderTest
) -> None:
    await deployment.queue.in_state("old", JobStatus.COMPLETED)
    await deployment.queue.put_entity("ada")

    [event] = events(await scan.tick())

    report = await kept(deployment)
    assert report is not None
    assert (report.entities, report.percent) == (2, 50.0)
    assert event.asset_key == dg.AssetKey("entity_embeddings")
    assert event.metadata["entities"].value == 2
    assert event.metadata["entities_missing"].value == 1
    assert event.metadata["coverage_percent"].value == 50.0


async def test_a_large_graph_takes_several_ticks_and_gives_the_report_of_a_whole_scan(
    deployment: Deployment, page_by_page: SensorUnderTest
) -> None:
    await given_large_graph(deployment.queue)
    whole = Scan.begin(deployment.queue.queue.reconciler(MODEL))
    await whole.go_on(dry_run=True)

    first, second = await page_by_page.tick(), await page_by_page.tick()
    assert events(first) == events(second) == []
    assert await kept(deployment) is None
    last = await page_by_page.tick()

    assert first.skip_message == f"{PAGE} entities read, {PAGE} jobs enqueued; goes on"
    assert second.skip_message == f"{2 * PAGE} entities read, {PAGE} jobs enqueued; goes on"
    assert last.skip_message == f"{LARGE} entities read, 1 jobs enqueued; 0.00 % are current"
    [event] = events(last)
    assert event.metadata["entities"].value == LARGE
    report = await kept(deployment)
    assert report is not None
    assert replace(report, at=None) == whole.report
    assert (await deployment.queue.admin.counts())[JobStatus.PENDING] == LARGE


async def test_a_model_that_changes_in_between_starts_the_scan_over(
    deployment: Deployment, page_by_page: SensorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await given_large_graph(deployment.queue)
    await page_by_page.tick()

    monkeypatch.setenv("EMBEDDING_MODEL", "new-model")
    again = await page_by_page.tick()
    await page_by_page.tick()
    await page_by_page.tick()

    assert again.skip_message == f"{PAGE} entities read, {PAGE} jobs enqueued; goes on"
    report = await kept(deployment, "new-model")
    assert report is not None
    assert report.entities == LARGE


async def test_a_report_of_another_version_starts_the_scan_over(
    deployment: Deployment, scan: SensorUnderTest
) -> None:
    await deployment.queue.put_entity("ada")
    scan.cursor = json.dumps({"after": "zzz", "model": MODEL, "report": '{"old": "shape"}'})

    data = await scan.tick()

    assert data.skip_message == "1 entities read, 1 jobs enqueued; 0.00 % are current"


async def test_the_next_scan_begins_at_the_first_entity_again(
    deployment: Deployment, scan: SensorUnderTest
) -> None:
    await deployment.queue.put_entity("zoe")
    await scan.tick()
    await deployment.queue.put_entity("ada")

    data = await scan.tick()

    assert data.skip_message == "2 entities read, 1 jobs enqueued; 0.00 % are current"


async def test_an_unchanged_result_is_emitted_again_only_after_an_hour(
    deployment: Deployment, scan: SensorUnderTest, now: Now
) -> None:
    await deployment.queue.in_state("ada", JobStatus.COMPLETED)
    first = events(await scan.tick())
    now.advance(NEWS_EVERY - timedelta(minutes=1))
    unchanged = events(await scan.tick())
    now.advance(timedelta(minutes=1))
    an_hour_later = events(await scan.tick())

    assert [len(first), len(unchanged), len(an_hour_later)] == [1, 0, 1]


async def test_a_changed_result_is_emitted_at_once(
    deployment: Deployment, scan: SensorUnderTest
) -> None:
    await scan.tick()
    await deployment.queue.put_entity("ada")

    [event] = events(await scan.tick())

    assert event.metadata["entities"].value == 1


async def test_the_same_numbers_for_another_model_are_a_changed_result(
    deployment: Deployment, scan: SensorUnderTest, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scan.tick()
    monkeypatch.setenv("EMBEDDING_MODEL", "new-model")

    [event] = events(await scan.tick())

    assert event.metadata["model"].value == "new-model"


async def test_an_interval_of_zero_turns_the_scan_off(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    await deployment.queue.put_entity("ada")
    off = sensor("reconcile_entities", EMBED_RECONCILE_INTERVAL="0")

    data = await off.tick()

    assert off.definition.default_status is dg.DefaultSensorStatus.STOPPED
    assert data.skip_message == "the scan is off (EMBED_RECONCILE_INTERVAL=0)"
    assert await deployment.queue.nodes() == []


async def an_hour_passes(deployment: Deployment) -> None:
    await deployment.queue.run(
        """
        MATCH (c:EmbedCoverage) SET c.moved_at = c.moved_at - 3600000, c.at = c.at - 3600000,
          c.begun_at = c.begun_at - 3600000
        """
    )


async def scan_ran(sensor: Callable[..., SensorUnderTest]) -> tuple[bool, str]:
    data = await sensor("queue_metrics").tick()
    [found] = [
        event
        for event in data.asset_events
        if isinstance(event, dg.AssetCheckEvaluation) and event.check_name == "scan_ran"
    ]
    return found.passed, found.description or ""


@pytest.mark.parametrize("has_ended_before", [True, False])
async def test_m84_a_scan_that_fails_on_every_tick_fails_a_check(
    deployment: Deployment,
    scan: SensorUnderTest,
    sensor: Callable[..., SensorUnderTest],
    monkeypatch: pytest.MonkeyPatch,
    has_ended_before: bool,
) -> None:
    async def fails(*_: Any, **__: Any) -> Any:
        raise UnreachableError("the server is out of memory")

    if has_ended_before:
        await scan.tick()
    monkeypatch.setattr(Neo4jReconciler, "page", fails)
    with pytest.raises(dg.Failure):
        await scan.tick()
    at_first, _ = await scan_ran(sensor)

    await an_hour_passes(deployment)
    with pytest.raises(dg.Failure):
        await scan.tick()
    later, said = await scan_ran(sensor)

    assert (at_first, later) == (True, False)
    assert "look at the ticks of the sensor reconcile" in said


async def test_m84_a_long_first_scan_that_gets_on_passes(
    deployment: Deployment, page_by_page: SensorUnderTest, sensor: Callable[..., SensorUnderTest]
) -> None:
    await given_large_graph(deployment.queue)
    await page_by_page.tick()
    await an_hour_passes(deployment)
    await page_by_page.tick()

    passed, said = await scan_ran(sensor)

    assert passed
    # Seconds, not the hour that has passed; how many depends on the machine.
    assert re.match(r"none has ended yet, the first one got on \d+ s ago", said)


async def test_m84_a_scan_may_be_as_late_as_two_take(
    deployment: Deployment, page_by_page: SensorUnderTest, sensor: Callable[..., SensorUnderTest]
) -> None:
    await given_large_graph(deployment.queue)
    await page_by_page.tick()
    await an_hour_passes(deployment)
    while page_by_page.cursor and "after" in page_by_page.cursor:
        await page_by_page.tick()
    await an_hour_passes(deployment)

    passed, said = await scan_ran(sensor)

    assert passed
    # Twice the interval, and what two scans took.
    assert re.search(r"the last one ended 1 h ago, 2 h( \d min)? are allowed", said)
