"""Settings that the data does not fit are named with what to do; a healthy graph is not."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given, strategies as st

from embed_pipeline.domain.contents import MOST_TEXTS, Content, Contents, present_in
from embed_pipeline.domain.coverage import Coverage, CoverageReport
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.keys import Unfit
from embed_pipeline.domain.misfits import Names, misfits

MOVIES = EntityShape(label="Movie", key="title", template="{title}: {tagline}")
NAMES = Names({"Movie": 38, "Person": 133}, {"title": 38, "released": 38, "tagline": 37})


def report(entities: int = 38, *, empty: int = 0, contents: Any = None, **more: Any) -> Any:
    counts = dict.fromkeys(Coverage, 0) | {Coverage.EMPTY_TEXT: empty}
    contents = {"read": entities, "present": {"title": 38, "tagline": 37}} | (contents or {})
    return CoverageReport(
        "m", entities=entities, counts=counts, contents=Contents(**contents), **more
    )


def said(found: CoverageReport, shape: EntityShape = MOVIES, names: Names = NAMES) -> list[str]:
    return [str(misfit) for misfit in misfits(found, shape, names)]


def test_m139_a_healthy_graph_gets_no_warning() -> None:
    assert said(report(contents={"texts": {"a": 2}}, empty=3)) == []


def test_m139_a_label_that_no_node_has_is_said_with_those_that_exist() -> None:
    [message] = said(report(0), EntityShape(label="Movies"))

    assert message == (
        "no node has the label Movies; set EMBED_ENTITY_LABEL; did you mean Movie? There are "
        "Movie (38), Person (133)"
    )


def test_m139_an_empty_database_may_be_the_wrong_one() -> None:
    [message] = said(report(0), names=Names())

    assert "NEO4J_DATABASE" in message


def test_m139_a_label_whose_nodes_are_all_outdated_is_another_thing() -> None:
    [message] = said(report(0))

    assert "all 38 nodes with the label Movie are outdated" in message
    assert "EMBED_ENTITY_VALID_TO" in message


@pytest.mark.parametrize(
    ("reason", "variable"),
    [(Unfit.KEY_MISSING, "EMBED_ENTITY_KEY"), (Unfit.VERSION, "EMBED_ENTITY_VERSION")],
)
def test_m139_unembeddable_ones_are_listed_with_reason_and_example(
    reason: Unfit, variable: str
) -> None:
    shape = EntityShape(label="Movie", key="titel", template="{tagline}")
    found = report(unfit={reason: 2}, unfit_names={reason: ("4:x:1",)})

    [message] = said(found, shape)

    expected = f"2 of 38 Movie nodes cannot be embedded, {reason.words}: 4:x:1; mend "
    assert message.startswith(expected)
    assert variable in message
    assert ("did you mean title?" in message) is (variable == "EMBED_ENTITY_KEY")


@pytest.mark.parametrize(
    ("present", "words"),
    [
        ({"title": 38}, "no Movie node has the property tagline"),
        ({"title": 38, "tagline": 11}, "the property tagline is missing on 27 of 38 nodes"),
    ],
)
def test_m139_a_property_of_the_template_that_hardly_any_node_has(
    present: dict[str, int], words: str
) -> None:
    [message] = said(report(contents={"present": present}))

    assert message.startswith(f"{words}, of which EMBED_ENTITY_TEMPLATE makes the text; set ")
    assert "there are title (38)" in message


def test_m139_the_text_of_memento_needs_facts_and_nothing_else() -> None:
    shape = EntityShape(label="Movie", key="title")

    [message] = said(report(contents={"present": {"title": 38}}), shape)

    assert message.startswith("no Movie node has the property observations")
    assert said(report(contents={"present": {"title": 38, "observations": 1}}), shape) == []


def test_m139_empty_and_equal_texts_are_said_from_a_share_on() -> None:
    assert ["27 of 38" in text for text in said(report(empty=27))] == [True]
    assert said(report(empty=3)) == []
    [same] = said(report(contents={"texts": {"a": 38}}))
    assert same.startswith("at least 38 of 38 Movie nodes have one and the same text")
    assert said(report(contents={"texts": {"a": 9}})) == []
    assert said(report(2, contents={"read": 2, "texts": {"a": 2}})) == []


def test_duplicate_keys_are_named_once_each() -> None:
    found = report(
        contents={"duplicates": 4, "duplicate_keys": ("Ada", "Bob")},
        unfit={Unfit.DUPLICATE: 2},
        unfit_names={Unfit.DUPLICATE: ("Ada",)},
    )

    [misfit] = misfits(found, MOVIES, NAMES)

    assert (misfit.is_of_keys, misfit.examples) == (True, ("Ada", "Bob"))
    assert misfit.what == "4 current Movie nodes share their title with another one"


def test_contents_count_what_a_page_holds() -> None:
    page = [
        Content("Ada", "h1", present_in({"title": "x", "tagline": ""})),
        Content("Ada", "h1", present_in({"title": "x", "tagline": None})),
        Content("Bob", "h2", present_in({"title": ["x"], "tagline": 0}), is_blank=True),
    ]

    found = Contents.of(page, ("title", "tagline"))

    assert (found.read, dict(found.present)) == (3, {"title": 3, "tagline": 1})
    assert (found.duplicates, found.duplicate_keys) == (2, ("Ada",))
    assert (found.same_text, dict(found.texts)) == (2, {"h1": 2})
    assert Contents.from_plain(found.to_plain()) == found


@given(st.lists(st.lists(st.integers(0, 60), max_size=40), max_size=12))
def test_a_frequent_text_is_found_however_the_pages_are_cut(pages: list[list[int]]) -> None:
    total = Contents()
    for page in pages:
        total = total.plus(Contents.of((Content(str(n), str(n), ()) for n in page), ()))

    real = Counter(number for page in pages for number in page)
    assert len(total.texts) <= MOST_TEXTS
    for number, count in real.items():
        kept = total.texts.get(str(number), 0)
        assert count - total.read / (MOST_TEXTS + 1) <= kept <= count
