"""The sum of a scan, without any database."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from embed_pipeline.domain.coverage import (
    MOST_LENGTHS,
    MOST_MODELS,
    MOST_TYPES,
    OTHER_LENGTHS,
    OTHER_MODELS,
    OTHER_TYPES,
    Coverage,
    CoverageKey,
    CoverageReport,
    ReconcilePage,
)
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.judging import UNKNOWN_MODEL, EntityReading
from embed_pipeline.domain.keys import Unfit
from embed_pipeline.domain.tally import LONGEST_NAME, Tally

CURRENT, MISSING, STALE = Coverage.CURRENT, Coverage.MISSING, Coverage.STALE
MODEL = "m"
NOW = datetime(2030, 1, 1, 12, 30, 15, 123000, tzinfo=UTC)


def reading(**changes: object) -> EntityReading:
    fields: dict[str, object] = {
        "uid": "ada",
        "version": 1,
        "has_vector": True,
        "dimensions": 4,
        "vector_model": MODEL,
        "vector_hash": "h",
        "vector_version": 1,
        "job_status": JobStatus.COMPLETED,
        "entity_type": "person",
    }
    return EntityReading(**{**fields, **changes})  # pyright: ignore[reportArgumentType]


def page(*found: tuple[EntityReading, Coverage], orphaned: int = 0) -> ReconcilePage:
    tally = Tally()
    for item, coverage in found:
        tally.add(item, coverage)
    return tally.page(cursor=None, orphaned=orphaned, enqueued={})


def report_of(*pages: ReconcilePage) -> CoverageReport:
    report = CoverageReport(MODEL)
    for one in pages:
        report = report.plus(one)
    return report


NO_VECTOR = reading(
    has_vector=False, dimensions=None, vector_model=None, vector_hash=None, job_status=None
)


def test_a_report_is_the_sum_of_its_pages() -> None:
    waiting = reading(job_status=JobStatus.PENDING)
    first = page((reading(pieces=3), CURRENT), (waiting, STALE), orphaned=2)
    second = page((reading(), CURRENT), (NO_VECTOR, MISSING), orphaned=1)

    report = report_of(first, second)

    assert report.entities == 4
    assert {kind: count for kind, count in report.counts.items() if count} == {
        CURRENT: 2,
        STALE: 1,
        MISSING: 1,
    }
    assert (report.waiting, report.orphaned) == (1, 3)
    assert (report.in_pieces, report.pieces) == (1, 3)
    assert report.dimensions == {4: 3}
    assert report.rows[CoverageKey("person", MODEL, CURRENT)] == 2
    assert report.percent == 50.0


def test_entities_are_counted_of_which_only_neighbours_have_changed() -> None:
    tally = Tally()
    tally.add(reading(), STALE, only_neighbours=True)
    tally.add(reading(), STALE)
    tally.add(reading(vector_model="old"), Coverage.WRONG_MODEL, only_neighbours=True)
    one = tally.page(cursor=None, enqueued={})

    report = report_of(one, one)

    assert report.neighbours_changed == 2
    assert CoverageReport.from_json(report.to_json()) == report


def test_an_entity_that_can_have_no_vector_does_not_count_against_the_coverage() -> None:
    report = report_of(page((reading(), CURRENT), (reading(), Coverage.UNEMBEDDABLE)))

    assert (report.entities, report.embeddable, report.percent) == (2, 1, 100.0)


def test_a_graph_without_entities_is_covered() -> None:
    assert CoverageReport(MODEL).percent == 100.0


def test_types_and_models_are_summed_up() -> None:
    report = report_of(
        page(
            (reading(), CURRENT),
            (reading(entity_type="city", vector_model="old"), Coverage.WRONG_MODEL),
            (reading(entity_type="city", vector_model=None), STALE),
            (NO_VECTOR, MISSING),
            (NO_VECTOR, MISSING),
        )
    )

    assert report.by_type() == {
        "person": {CURRENT: 1, MISSING: 2},
        "city": {Coverage.WRONG_MODEL: 1, STALE: 1},
    }
    assert list(report.by_type()) == ["person", "city"]
    assert report.models() == {MODEL: 1, "old": 1, UNKNOWN_MODEL: 1}


def test_a_report_stays_small_whatever_the_graph_holds() -> None:
    often = [(reading(), CURRENT)] * 3
    report = CoverageReport(MODEL)
    for start in range(0, 1_000, 100):
        odd = [
            (reading(entity_type=f"t{n}", vector_model=f"m{n}", dimensions=1_000 + n), STALE)
            for n in range(start, start + 100)
        ]
        report = report.plus(page(*often, *odd))

    types, models = report.by_type(), report.models()

    assert (len(types), len(models)) == (MOST_TYPES + 1, MOST_MODELS + 1)
    assert len(report.dimensions) == MOST_LENGTHS + 1
    assert types["person"] == {CURRENT: 30}
    assert types[OTHER_TYPES] == {STALE: 1_000 - (MOST_TYPES - 1)}
    assert models[MODEL] == 30
    assert models[OTHER_MODELS] == 1_000 - (MOST_MODELS - 1)
    assert report.dimensions[OTHER_LENGTHS] == 1_000 - (MOST_LENGTHS - 1)
    assert sum(report.rows.values()) == sum(report.dimensions.values()) == report.entities
    assert len(report.to_json()) < 10_000


def test_a_name_of_any_length_is_kept_short() -> None:
    long = reading(entity_type="t" * 5_000, vector_model="m" * 5_000)

    [key] = page((long, STALE)).rows

    assert (len(key.entity_type), len(key.model or "")) == (LONGEST_NAME, LONGEST_NAME)


def test_m139_reasons_are_counted_and_the_first_examples_named() -> None:
    def unfit(name: str) -> tuple[EntityReading, Coverage]:
        return reading(uid=name, unfit=Unfit.DUPLICATE), Coverage.UNEMBEDDABLE

    report = report_of(page(unfit("a"), unfit("b")), page(unfit("c"), unfit("d")))

    assert report.unfit == {Unfit.DUPLICATE: 4}
    assert report.unfit_names == {Unfit.DUPLICATE: ("a", "b", "c")}


def test_empty_texts_and_kept_vectors_of_others_are_not_waited_for() -> None:
    found = page(
        (reading(), CURRENT),
        (NO_VECTOR, Coverage.EMPTY_TEXT),
        (reading(is_ours=False), Coverage.FOREIGN),
    )

    replaced = report_of(found)
    kept = replace(replaced, keeps_foreign=True)

    assert (replaced.embeddable, replaced.percent) == (2, 50.0)
    assert (kept.embeddable, kept.percent) == (1, 100.0)


@pytest.mark.parametrize("at", [None, NOW])
def test_a_report_survives_being_written_down(at: datetime | None) -> None:
    unfit = (reading(unfit=Unfit.VERSION), Coverage.UNEMBEDDABLE)
    pages = page((reading(pieces=3), CURRENT), (NO_VECTOR, MISSING), unfit, orphaned=1)
    report = replace(report_of(pages), at=at, keeps_foreign=True)

    assert CoverageReport.from_json(report.to_json()) == report


@pytest.mark.parametrize("text", ["", "{}", "[]", "3", '"x"', '{"model": "m", "entities": null}'])
def test_what_is_no_report_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"coverage report|Expecting value"):
        CoverageReport.from_json(text)
