"""The coverage of the last scan is kept, so that nobody has to scan for it."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pytest

from embed_pipeline.cli.entities import scan
from embed_pipeline.domain.coverage import Coverage, CoverageKey, CoverageReport
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.operations.scan import Scan
from embed_pipeline.settings import Settings
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.queue import open_queue
from tests.support.queue_harness import MODEL, NUMBERS, Neo4jUnderTest, pages_of

SETTINGS = cast("Settings", SimpleNamespace(model=MODEL))


async def scanned(queue: Neo4jUnderTest, **options: Any) -> Scan:
    return await scan(queue.queue, SETTINGS, **options)


async def test_before_the_first_scan_there_is_no_coverage(queue: Neo4jUnderTest) -> None:
    assert await queue.queue.reconciler(MODEL).last() is None


async def test_the_sum_of_a_scan_is_kept_with_the_time_of_the_server(queue: Neo4jUnderTest) -> None:
    await queue.in_state("ada", JobStatus.COMPLETED)
    await queue.put_entity("bob")
    reconciler = queue.queue.reconciler(MODEL)
    report = CoverageReport(MODEL)
    for page in await pages_of(reconciler, limit=1):
        report = report.plus(page)

    saved = await reconciler.save(report)
    queue.clock.advance(timedelta(hours=1))

    assert saved.at == queue.clock.now - timedelta(hours=1)
    assert await reconciler.last() == saved
    assert (saved.entities, saved.percent) == (2, 50.0)


async def test_without_a_clock_of_the_tests_the_server_says_when_it_was(
    queue: Neo4jUnderTest,
) -> None:
    reconciler = open_queue(queue.driver, database=queue.database).reconciler(MODEL)
    [before] = await queue.run("RETURN datetime.realtime() AS now")

    saved = await reconciler.save(CoverageReport(MODEL))

    [after] = await queue.run("RETURN datetime.realtime() AS now")
    assert saved.at is not None
    slack = timedelta(milliseconds=1)
    assert before["now"].to_native() - slack <= saved.at <= after["now"].to_native()


async def test_the_next_scan_replaces_the_last_one(queue: Neo4jUnderTest) -> None:
    reconciler = queue.queue.reconciler(MODEL)
    await reconciler.save(CoverageReport(MODEL, entities=1))
    await reconciler.save(CoverageReport(MODEL, entities=2))

    last = await reconciler.last()

    assert last is not None
    assert last.entities == 2
    assert await queue.run("MATCH (c:EmbedCoverage) RETURN c.entities AS n") == [{"n": 2}]


async def test_every_queue_and_model_has_its_own_coverage(queue: Neo4jUnderTest) -> None:
    other = open_queue(queue.driver, database=queue.database, config=QueueConfig(queue="other"))
    reconcilers = [
        queue.queue.reconciler(MODEL),
        queue.queue.reconciler("new-model"),
        other.reconciler(MODEL),
    ]
    for entities, reconciler in enumerate(reconcilers):
        await reconciler.save(CoverageReport(reconciler.model, entities=entities))

    last = [await reconciler.last() for reconciler in reconcilers]

    assert [report.entities for report in last if report] == [0, 1, 2]


async def test_what_another_version_wrote_counts_as_no_scan(
    queue: Neo4jUnderTest, caplog: pytest.LogCaptureFixture
) -> None:
    reconciler = queue.queue.reconciler(MODEL)
    await reconciler.save(CoverageReport(MODEL))
    await queue.run("MATCH (c:EmbedCoverage) SET c.report = '{}'")

    assert await reconciler.last() is None
    assert "cannot be read" in caplog.text


async def test_types_and_models_of_any_kind_are_counted(queue: Neo4jUnderTest) -> None:
    await queue.run(
        """
        CREATE (:Entity {name: 'no type'}), (:Entity {name: 'odd type', entityType: 7}),
          (:Entity {name: 'odd model', entityType: 'x', embedding: $vector, embedding_model: 8}),
          (:Entity {name: 'no model', entityType: 'x', embedding: $vector})
        """,
        vector=NUMBERS,
    )

    page = await queue.queue.reconciler(MODEL).page(dry_run=True)

    assert page.rows == {
        CoverageKey("", None, Coverage.MISSING): 1,
        CoverageKey("7", None, Coverage.MISSING): 1,
        CoverageKey("x", "8", Coverage.FOREIGN): 1,
        CoverageKey("x", "(unknown)", Coverage.FOREIGN): 1,
    }


async def test_a_scan_of_everything_is_kept(queue: Neo4jUnderTest) -> None:
    await queue.put_entity("ada")
    await queue.put_entity("bob")

    done = await scanned(queue, page_size=1)

    assert done.report.entities == 2
    assert done.report.at == queue.clock.now
    assert await queue.queue.reconciler(MODEL).last() == done.report


@pytest.mark.parametrize("options", [{"limit": 1}, {"after": "ada"}, {"dry_run": True}])
async def test_a_scan_of_a_part_or_for_a_look_is_not_kept(
    queue: Neo4jUnderTest, options: dict[str, Any]
) -> None:
    await queue.put_entity("ada")
    await queue.put_entity("bob")

    done = await scanned(queue, **options)

    assert done.report.at is None
    assert await queue.queue.reconciler(MODEL).last() is None
