"""The report in a real browser: wide and narrow, light and dark, and without any network."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from embed_pipeline.report.page import render
from embed_pipeline.report.source import History
from tests.support.browser import ARGUMENTS, NAMES, PATIENCE_MS, find_chromium
from tests.support.history_sample import failure, history, week

pytestmark = pytest.mark.skipif(
    find_chromium() is None, reason=f"no browser: none of {', '.join(NAMES)} is on the PATH"
)

OVERFLOWING = """
() => [...document.querySelectorAll("body *")]
  .filter(e => !(e instanceof SVGElement) || e.tagName === "svg")
  .filter(e => {
    const box = e.getBoundingClientRect();
    const isOut = box.left < 0 || box.right > document.documentElement.clientWidth + 0.5;
    return isOut || (e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1);
  })
  .map(e => `${e.tagName}.${e.className}: ${e.textContent.slice(0, 60)}`)
"""
TICKS_OUTSIDE = """
() => [...document.querySelectorAll("svg")].flatMap(svg => {
  const frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter(text => {
    const box = text.getBoundingClientRect();
    return box.left < frame.left - 1 || box.right > frame.right + 1;
  }).map(text => text.textContent);
})
"""


def hostile() -> History:
    """The week, with errors that nobody would like to see on a page."""
    found = week()
    texts = (
        "<script>document.title = 'owned'</script>",
        '<img src="https://example.org/x.png" onerror="document.title = 1">',
        "word" * 500,
        "خطأ في النص " * 40,
        "\u202e evil \x00\x1b[2J",
    )
    rows = [failure(count=9 - n, example_error=t, example_job=t) for n, t in enumerate(texts)]
    return history(found.metrics, found.drains, rows, model="m" * 300)


PAGES = {"week": week, "hostile": hostile, "empty": history}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        yield opened
        opened.close()


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """EMBED_PIPELINE_SCREENSHOTS, or a folder that pytest keeps for a while."""
    given = os.environ.get("EMBED_PIPELINE_SCREENSHOTS")
    return Path(given).absolute() if given else tmp_path_factory.mktemp("screenshots")


@pytest.fixture
def page(chromium: Browser) -> Iterator[Page]:
    opened = chromium.new_page()
    opened.set_default_timeout(PATIENCE_MS)
    yield opened
    opened.close()


def open_report(page: Page, folder: Path, name: str) -> list[str]:
    """Open a report from a file, as it comes out of a mail; return what the page asked for."""
    file = folder / f"{name}.html"
    file.write_text(render(PAGES[name]()), encoding="utf-8")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(file.as_uri())
    return [url for url in asked if url != file.as_uri()]


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", PAGES)
def test_no_element_overflows(page: Page, tmp_path: Path, name: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 900})

    open_report(page, tmp_path, name)

    assert page.evaluate(OVERFLOWING) == []
    assert page.evaluate(TICKS_OUTSIDE) == []


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_fetched_and_nothing_is_run(page: Page, tmp_path: Path, name: str) -> None:
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(said.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))

    asked = open_report(page, tmp_path, name)

    assert asked == []
    assert complaints == []
    assert page.title().startswith("Embedding queue: ")


def luminance(page: Page, selector: str, style: str) -> float:
    """How bright a colour is on the screen, from 0 to 255."""
    script = f"e => getComputedStyle(e).{style}.match(/[0-9.]+/g).slice(0, 3).map(Number)"
    red, green, blue = page.locator(selector).first.evaluate(script)
    return 0.3 * red + 0.6 * green + 0.1 * blue


def test_the_page_is_light_or_dark_as_its_reader_wishes(page: Page, tmp_path: Path) -> None:
    open_report(page, tmp_path, "week")

    page.emulate_media(color_scheme="light")
    assert luminance(page, "body", "backgroundColor") > 200 > luminance(page, "body", "color")
    page.emulate_media(color_scheme="dark")
    assert luminance(page, "body", "backgroundColor") < 60 < luminance(page, "body", "color")
    for selector, style in ((".line", "stroke"), (".verdict", "color"), (".tick", "fill")):
        assert luminance(page, selector, style) > 120


def test_the_picture_of_the_docs(page: Page, tmp_path: Path, pictures: Path) -> None:
    page.set_viewport_size({"width": 1280, "height": 1130})
    page.emulate_media(color_scheme="light")

    open_report(page, tmp_path, "week")

    assert page.locator("svg").count() == 5
    assert all(chart.is_visible() for chart in page.locator("path.line").all())
    page.screenshot(path=pictures / "report.png")
