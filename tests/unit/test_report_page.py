"""The page of the report: what it draws, and that no text can break out of it."""

import re
from datetime import timedelta
from html.parser import HTMLParser

import pandas as pd
import pytest

from embed_pipeline.report.charts import MOST_POINTS, line_chart
from embed_pipeline.report.page import render
from embed_pipeline.report.words import MOST_CHARACTERS, plain
from tests.support.history_sample import NOW, STEP, failure, history, index_of, readings, week

CALM = {"pending": 0, "failed": 0, "completed": 10, "completed_total": 10}
HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src="https://example.org/x.png" onerror=alert(1)>',
    "{{ 7 * 7 }}{% raw %}",
    "]]>--><svg onload=alert(1)>",
    "' style='position:fixed",
)


class Tags(HTMLParser):
    """Every tag of a page with its attributes, and its text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return "".join(self.texts)


FETCHING = {"src", "href", "srcset", "action", "data", "poster", "background", "xlink:href"}


def assert_self_contained(page: str) -> None:
    found = Tags(page)
    names = {tag for tag, _ in found.tags}
    attributes = {name for _, attrs in found.tags for name in attrs}

    assert not names & {"script", "link", "img", "iframe", "object", "embed", "base", "form"}
    assert not attributes & FETCHING
    assert not {name for name in attributes if name.startswith("on")}
    [style] = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert not re.search(r"url\(|@import", style)


def test_the_page_fetches_nothing_and_runs_nothing() -> None:
    page = render(week())

    assert_self_contained(page)
    assert "://" not in page
    assert "default-src 'none'" in page


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_stays_a_text(text: str) -> None:
    drains = pd.DataFrame(
        [{"completed": 1, "seconds": 1.0, "seconds_waiting": 0.0, "ending": text, "model": text}],
        index=index_of([NOW]),
    )
    rows = [failure(example_error=text, example_job=text, category=text)]

    page = render(history(readings(CALM, CALM), drains, rows, model=text))

    assert_self_contained(page)
    assert Tags(page).text.count(text) >= 6


def test_what_cannot_be_seen_is_replaced_and_cannot_turn_the_page_round() -> None:
    text = "a\x00b\x1b[31mc\u202ed\nf\tg"
    page = render(history(readings(CALM), failures=[failure(example_error=text)]))

    assert "a�b�[31mc�d f g" in page
    assert plain("\ud800") == "�"


def test_letters_from_right_to_left_stay_and_are_kept_apart() -> None:
    page = render(history(readings(CALM), failures=[failure(example_error="خطأ في النص")]))

    assert "<bdi>خطأ في النص</bdi>" in page


def test_a_long_text_is_cut() -> None:
    assert plain("x" * MOST_CHARACTERS) == "x" * MOST_CHARACTERS
    assert plain("x" * (MOST_CHARACTERS + 1)) == "x" * (MOST_CHARACTERS - 1) + "…"


def test_an_empty_history_says_so() -> None:
    page = render(history())

    assert_self_contained(page)
    assert "There are no readings in this time." in page
    assert "Is Dagster running, and its sensor queue_metrics on?" in page
    assert "<svg" not in page


def test_failures_are_shown_without_any_reading() -> None:
    page = render(history(failures=[failure(count=1_234)]))

    assert "1,234 jobs, by 1 kind of error." in page


def test_tables_that_lack_columns_and_values_are_shown_as_far_as_they_go() -> None:
    drains = pd.DataFrame(
        [{"completed": 5, "ending": None, "config_labels": ["a"]}, {"completed": None}],
        index=index_of([NOW, NOW - STEP]),
    )

    page = render(history(readings(CALM), drains, [failure(last_seen=pd.NaT)]))

    assert not re.search(r"\b(nan|NaT|None|<NA>)\b", page)
    assert page.count('data-name="Ended because"') == 2


def test_the_latest_drains_come_first() -> None:
    moments = re.findall(r'data-name="Ended, UTC">([^<]+)<', render(week()))

    assert len(moments) == 15
    assert moments == sorted(moments, reverse=True)
    assert moments[0] == "2030-01-08 12:00"


def path_of(chart: str) -> str:
    [path] = re.findall(r' d="([^"]+)"', chart)
    return path


def series(*values: float, step: timedelta = timedelta(minutes=1), name: str = "x") -> pd.Series:
    moments = index_of([NOW + step * number for number in range(len(values))])
    return pd.Series(values, index=moments, name=name, dtype=float)


def test_a_line_is_broken_where_readings_are_missing() -> None:
    whole = series(*[1.0] * 20)

    assert path_of(line_chart({"x": whole}, label="x")).count("M") == 1
    holed = pd.concat([whole.iloc[:5], whole.iloc[15:]])
    assert path_of(line_chart({"x": holed}, label="x")).count("M") == 2


def test_a_single_reading_is_a_dot() -> None:
    assert path_of(line_chart({"x": series(1.0)}, label="x")).endswith("h0")


def test_a_long_history_is_thinned_and_keeps_the_worst_age() -> None:
    ages = [0.0] * 10_000
    ages[5_000] = 80.0

    path = path_of(line_chart({"x": series(*ages, name="oldest_pending_seconds")}, label="x"))

    assert path.count("L") <= MOST_POINTS
    assert ",10.0" in path  # the top of the picture, where 80 of 80 is


def test_a_chart_without_values_says_so() -> None:
    assert line_chart({"x": series()}, label="x") == '<p class="none">No readings in this time.</p>'


def test_the_quality_of_the_vectors_is_drawn_where_it_was_measured() -> None:
    measured = CALM | {"quality_auc": 0.85, "quality_auc_low": 0.82, "quality_auc_high": 0.88}

    assert "Quality of the vectors" in render(history(readings(CALM, measured)))
    assert "Quality of the vectors" not in render(history(readings(CALM, CALM)))
