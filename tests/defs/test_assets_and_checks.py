"""Assets and checks as an operator starts and reads them in Dagster."""

import asyncio
import base64
import re
from collections.abc import Callable
from datetime import timedelta
from typing import Any
from xml.etree import ElementTree

import dagster as dg
import pytest

from embed_pipeline.defs import checks
from embed_pipeline.defs.assets import queue_metrics_asset
from embed_pipeline.defs.metadata import SHOWN, TYPES, of_coverage, table
from embed_pipeline.defs.site import Site
from embed_pipeline.domain.checks import CHECKS, Severity
from embed_pipeline.domain.coverage import Coverage, CoverageKey, CoverageReport, ReconcilePage
from embed_pipeline.domain.job import JobStatus
from tests.defs.conftest import Deployment, SensorUnderTest
from tests.support.queue_harness import MODEL, NUMBERS
from tests.support.sites import site_of

HOSTILE = "<script>&\"'\x00\x1b]]>"
SVG = "{http://www.w3.org/2000/svg}"
PICTURE = re.compile(r"!\[(.+)\]\(data:image/svg\+xml;base64,(.+)\)")


async def materialized(deployment: Deployment, name: str) -> dict[str, dg.MetadataValue]:
    """The metadata that a click on Materialize leaves."""
    everything = deployment.defs.resolve_implicit_global_asset_job_def()
    result = await asyncio.to_thread(
        everything.execute_in_process,
        instance=deployment.instance,
        asset_selection=[dg.AssetKey(name)],
    )
    [event] = result.asset_materializations_for_node(name)
    return dict(event.metadata)


async def checked(deployment: Deployment) -> dict[str, dg.AssetCheckEvaluation]:
    """What a click on Execute of the checks leaves."""
    job = dg.define_asset_job("look", selection=dg.AssetSelection.all_asset_checks())
    defs = dg.Definitions.merge(deployment.defs, dg.Definitions(jobs=[job]))
    result = await asyncio.to_thread(
        defs.resolve_job_def("look").execute_in_process, instance=deployment.instance
    )
    # The gates of a cut-over are another matter.
    found = [
        each
        for each in result.get_asset_check_evaluations()
        if not each.check_name.startswith("cutover_")
    ]
    assert len(found) == len({each.check_name for each in found})
    return {each.check_name: each for each in found}


def picture(metadata: dict[str, Any]) -> ElementTree.Element:
    """The chart, as a browser would read it."""
    found = PICTURE.fullmatch(metadata["chart"].value)
    assert found is not None
    return ElementTree.fromstring(base64.b64decode(found[2], validate=True))


def labels(chart: ElementTree.Element) -> list[str]:
    return [text.text or "" for text in chart.iter(f"{SVG}text")]


def report_of(**types: int) -> CoverageReport:
    """A scan that found so many missing entities of each type."""
    rows = {CoverageKey(name, None, Coverage.MISSING): count for name, count in types.items()}
    total = sum(types.values())
    page = ReconcilePage(
        cursor=None,
        scanned=total,
        coverage=dict.fromkeys(Coverage, 0) | {Coverage.MISSING: total},
        waiting=0,
        orphaned=0,
        rows=rows,
    )
    return CoverageReport(MODEL).plus(page)


async def test_materializing_the_queue_metrics_gives_the_reading_of_the_sensor(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    await deployment.queue.given_jobs("ada", "bob")
    await sensor("reconcile_entities").tick()
    ticked = await sensor("queue_metrics").tick()
    [event] = [e for e in ticked.asset_events if isinstance(e, dg.AssetMaterialization)]

    metadata = await materialized(deployment, "embed_queue_metrics")

    assert set(metadata) == set(event.metadata)
    assert metadata["pending"].value == 2
    assert metadata["entities"].value == 2


async def test_materializing_without_the_schema_says_what_to_do(deployment: Deployment) -> None:
    await deployment.queue.run("DROP INDEX embed_pending_urgency")

    with pytest.raises(dg.Failure) as caught:
        await materialized(deployment, "embed_queue_metrics")

    assert caught.value.description == (
        "The queue cannot be read: the schema lacks embed_pending_urgency; "
        "run 'embed-pipeline init'"
    )


async def scanned(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> dict[str, dg.MetadataValue]:
    """What a scan leaves at the embeddings."""
    [event] = (await sensor("reconcile_entities").tick()).asset_events
    return dict(event.metadata)


async def test_the_embeddings_come_with_a_table_and_a_chart(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    await deployment.queue.in_state("ada", JobStatus.COMPLETED)
    await deployment.queue.put_entity("bob")

    metadata = await scanned(deployment, sensor)

    types, models = metadata["by_entity_type"], metadata["by_model"]
    assert isinstance(types, dg.TableMetadataValue)
    assert isinstance(models, dg.TableMetadataValue)
    assert [record.data for record in types.records] == [
        {
            "entity type": "test",
            "entities": 2,
            "current": 1,
            "missing": 1,
            "stale": 0,
            "wrong_model": 0,
            "foreign": 0,
            "empty_text": 0,
            "unembeddable": 0,
        }
    ]
    assert [record.data for record in models.records] == [{"model": MODEL, "entities": 1}]
    chart = picture(metadata)
    assert chart.tag == f"{SVG}svg"
    assert labels(chart)[:2] == ["test", "2"]
    widths = [float(bar.get("width", 0)) for bar in chart.iter(f"{SVG}rect")][:5]
    assert widths == [160.0, 0.0, 160.0, 0.0, 0.0]


async def test_a_hostile_entity_type_stays_text(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    await deployment.queue.run("CREATE (:Entity {name: 'e', entityType: $type})", type=HOSTILE)

    metadata = await scanned(deployment, sensor)

    chart = picture(metadata)
    assert {element.tag for element in chart.iter()} == {
        f"{SVG}{t}" for t in ("svg", "rect", "text")
    }
    assert labels(chart)[0] == HOSTILE.replace("\x00", "\ufffd").replace("\x1b", "\ufffd")


def test_the_chart_says_which_types_it_leaves_out() -> None:
    types = {f"type {number}": 100 - number for number in range(TYPES + 2)}

    chart = picture(of_coverage(report_of(**types)))
    whole = picture(of_coverage(report_of(**dict(list(types.items())[:TYPES]))))

    assert labels(chart)[-1] == "not shown: 175 entities of 2 more types"
    assert not any("not shown" in label for label in labels(whole))


def test_a_long_type_is_cut_before_it_is_escaped() -> None:
    chart = picture(of_coverage(report_of(**{"&" * 100: 1})))

    assert labels(chart)[0] == "&" * 23 + "…"


def test_an_empty_graph_has_a_table_and_a_chart_too() -> None:
    metadata = of_coverage(CoverageReport(MODEL))

    assert metadata["by_entity_type"].records == []
    assert picture(metadata).tag == f"{SVG}svg"
    assert metadata["coverage_percent"] == 100.0


def test_a_table_has_an_end() -> None:
    assert len(table({"row": number} for number in range(SHOWN + 1)).records) == SHOWN


def test_lineage_leads_from_the_entities_over_their_vectors_to_the_index(
    deployment: Deployment,
) -> None:
    graph = deployment.defs.resolve_asset_graph()

    parents = {
        key.to_user_string(): {parent.to_user_string() for parent in graph.get(key).parent_keys}
        for key in graph.get_all_asset_keys()
    }

    assert parents == {
        "graph_entities": set(),
        "entity_embeddings": {"graph_entities"},
        "entity_vector_index": {"entity_embeddings"},
        "embed_queue_metrics": set(),
        "operator_actions": set(),
        "embedding_plan": {"entity_embeddings"},
        "embedding_quality": {"entity_embeddings"},
        "embed_cutover": set(),
        "embed_drains": set(),
        "queue_metrics_history": {"embed_queue_metrics", "entity_embeddings", "embed_drains"},
    }


@pytest.mark.parametrize(
    ("interval", "late"),
    [(timedelta(seconds=5), timedelta(minutes=2)), (timedelta(hours=1), timedelta(hours=5))],
)
def test_the_metrics_are_stale_when_readings_stay_away(
    interval: timedelta, late: timedelta
) -> None:
    site = site_of(EMBED_METRICS_INTERVAL=interval)
    [spec] = queue_metrics_asset(site, site.first).specs

    assert spec.freshness_policy == dg.FreshnessPolicy.time_window(
        warn_window=late, fail_window=2 * late
    )


async def test_the_checks_yield_exactly_what_is_announced(deployment: Deployment) -> None:
    found = await checked(deployment)

    assert list(found) == [check.name for check in CHECKS]
    site = Site((deployment.settings,))
    specs = checks.health_checks(site, site.first).check_specs
    announced = {(spec.name, spec.asset_key) for spec in specs}
    assert {(name, each.asset_key) for name, each in found.items()} == announced


def test_every_check_says_what_it_is_for() -> None:
    site = site_of()
    assert all(spec.description for spec in checks.health_checks(site, site.first).check_specs)


async def test_a_failing_check_shows_severity_message_and_figures(deployment: Deployment) -> None:
    deployment.queue.clock.advance(-timedelta(hours=1))
    await deployment.queue.leased("ada")

    verdict = (await checked(deployment))["no_forgotten_leases"]

    assert not verdict.passed
    assert verdict.severity is dg.AssetCheckSeverity.ERROR
    assert (verdict.description or "").startswith("1 expired leases, the oldest for 5")
    assert "is the sensor stale_leases on?" in (verdict.description or "")
    assert verdict.metadata["expired_leases"].value == 1
    assert verdict.metadata["oldest_expired_seconds"].value > 0  # pyright: ignore


async def test_what_cannot_be_judged_yet_says_so_and_alarms_nobody(
    deployment: Deployment,
) -> None:
    verdict = (await checked(deployment))["coverage_above_floor"]

    assert verdict.passed
    assert verdict.description == "no scan of the entities has ended yet"


async def test_the_checks_say_the_same_in_a_run_and_from_the_sensor(
    deployment: Deployment, sensor: Callable[..., SensorUnderTest]
) -> None:
    await deployment.queue.given_jobs("ada")
    await sensor("stale_leases").tick()
    await sensor("reconcile_entities").tick()
    ticked = await sensor("queue_metrics").tick()
    from_sensor = [e for e in ticked.asset_events if isinstance(e, dg.AssetCheckEvaluation)]

    in_run = await checked(deployment)

    assert {e.check_name: (e.passed, e.severity, e.asset_key) for e in from_sensor} == {
        name: (e.passed, e.severity, e.asset_key) for name, e in in_run.items()
    }
    assert all(set(e.metadata) == set(in_run[e.check_name].metadata) for e in from_sensor)


def test_every_severity_and_subject_has_its_place_in_dagster() -> None:
    assert set(checks.SEVERITIES) == set(Severity)
    assert set(checks.ASSETS) == {check.subject for check in CHECKS}


async def test_m139_settings_that_miss_the_data_are_a_check_that_warns(
    deployment: Deployment,
) -> None:
    await deployment.queue.put_entity("ada")
    await deployment.run("reconcile_embeddings")
    good = await checked(deployment)
    await deployment.queue.run("CREATE (:Entity {name: 'ada', observations: ['another one']})")
    await deployment.queue.run("MATCH (e:Entity) SET e:Memory REMOVE e.entityType")
    await deployment.run("reconcile_embeddings")
    shared = await checked(deployment)
    await deployment.queue.run("MATCH (e:Memory) REMOVE e:Entity")
    await deployment.run("reconcile_embeddings")
    nothing = await checked(deployment)
    await deployment.queue.run("MATCH (e:Memory) DETACH DELETE e")

    def said(found: dict[str, dg.AssetCheckEvaluation], name: str) -> tuple[bool, str]:
        assert found[name].passed or found[name].severity is dg.AssetCheckSeverity.WARN
        return found[name].passed, (found[name].description or "").partition(";")[0]

    assert said(good, "settings_fit_data") == (True, "nothing found")
    assert said(good, "keys_unique") == (True, "nothing found")
    words = "2 current Entity nodes share their name with another one: ada"
    assert said(shared, "keys_unique") == (False, words)
    assert said(nothing, "settings_fit_data") == (False, "no node has the label Entity")
    assert "here are Memory (2)" in (nothing["settings_fit_data"].description or "")


async def test_r7_mock_vectors_cannot_pass_for_real_ones(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")
    monkeypatch.setenv("EMBEDDING_PROVIDER", "auto")
    await deployment.queue.run(
        "CREATE (:Entity {name: 'e', embedding: $vector, embedding_model: $model})",
        vector=NUMBERS,
        model=f"mock-{MODEL}",
    )
    await deployment.run("reconcile_embeddings")

    verdict = (await checked(deployment))["no_mock_vectors"]

    assert not verdict.passed
    assert verdict.severity is dg.AssetCheckSeverity.WARN
    assert verdict.metadata["mock_vectors"].value == 1
    warning = (await materialized(deployment, "embed_queue_metrics"))["warning"].value
    assert warning == f"mock-{MODEL} makes mock vectors, which mean nothing; set OPENAI_API_KEY"


async def test_with_a_real_model_there_is_no_warning(deployment: Deployment) -> None:
    assert "warning" not in await materialized(deployment, "embed_queue_metrics")
