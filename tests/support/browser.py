"""Dagster's pages in a real browser, for tests and for the pictures of the docs."""

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from playwright.sync_api import Locator, Page, expect, sync_playwright

from tests.support.patience import PATIENCE_SECONDS

NAMES = ("chromium", "chromium-browser", "google-chrome")
ARGUMENTS = [
    "--headless",
    # Chromium refuses to run as root with it, as it does in containers.
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
PATIENCE_MS = PATIENCE_SECONDS * 1000
LAST_HOUR = re.compile(r"^\d\d:\d\d to \d\d:\d\d UTC$")
"""What is read aloud of the picture above the figures of a queue."""


def find_chromium() -> str | None:
    """The browser of this machine, if it has one."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@dataclass
class DagsterPages:
    """What a person sees; each method opens a page and waits until it shows its content."""

    page: Page
    url: str
    pictures: Path
    errors: list[str] = field(default_factory=list)
    """What the browser complained about since the last look."""

    def asset(self, name: str) -> None:
        self._open(f"/assets/{name}", self._plots)

    def plots(self, asset: str) -> Locator:
        """Press "Plots" on the page of an asset; return the drawings."""
        self.asset(asset)
        self._plots.click()
        drawings = self.page.locator("canvas")
        expect(drawings.first).to_be_visible()
        return drawings

    def chart(self, asset: str, alt: str | re.Pattern[str]) -> Locator:
        """Open the picture that stands in the metadata of an asset."""
        self.asset(asset)
        self.page.get_by_text("[Show Markdown]").click()
        picture = self.page.get_by_alt_text(alt)
        expect(picture).to_be_visible()
        return picture

    def checks(self, asset: str, check: str) -> None:
        path = f"/assets/{asset}?view=checks&checkDetail={check}"
        self._open(path, self.page.get_by_text("Latest execution"))

    def launchpad(self, job: str, option: str) -> Locator:
        """Put the cursor on an option of a job; return the panel that explains its neighbours."""
        path = f"/locations/embed_pipeline/jobs/{job}/playground"
        line = self.page.locator(".CodeMirror-line").filter(has_text=f"{option}:")
        self._open(path, line)
        line.click()
        panel = self.page.locator("div", has_text="Use Ctrl+Space to show").last.locator("xpath=..")
        expect(panel.get_by_text(f"{option}", exact=True)).to_be_visible()
        return panel

    def skipped_tick(self, sensor: str) -> Locator:
        """Open the latest tick of a sensor that started nothing; return what it says."""
        tick = self.page.get_by_role("button", name="0 runs requested")
        self._open(f"/locations/embed_pipeline/sensors/{sensor}", tick)
        tick.first.click()
        label = self.page.get_by_role("dialog").get_by_text("Skip reason:")
        expect(label).to_be_visible()
        return label.locator("xpath=..")

    def run(self, run_id: str) -> None:
        self._open(f"/runs/{run_id}", self.page.get_by_text("RUN_SUCCESS", exact=True))

    def lineage(self, asset: str) -> None:
        self._open(f"/assets/{asset}?view=lineage", self.page.get_by_text("graph_entities"))

    def keep(self, name: str) -> Path:
        """Keep a picture of what is seen now."""
        target = self.pictures / f"{name}.png"
        self.page.screenshot(path=target)
        return target

    @property
    def _plots(self) -> Locator:
        return self.page.get_by_role("button", name="Plots")

    def _open(self, path: str, content: Locator) -> None:
        self.page.goto(self.url + path)
        expect(content.first).to_be_visible()


@contextmanager
def browser(
    url: str, pictures: Path, *, width: int = 1280, height: int = 800
) -> Iterator[DagsterPages]:
    """Open the browser of this machine on a running Dagster."""
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=find_chromium(), args=ARGUMENTS)
        try:
            page = chromium.new_page(viewport={"width": width, "height": height})
            page.set_default_timeout(PATIENCE_MS)
            pages = DagsterPages(page, url, pictures)
            page.on("pageerror", lambda error: pages.errors.append(str(error)))
            page.on(
                "console",
                lambda said: pages.errors.append(said.text) if said.type == "error" else None,
            )
            yield pages
        finally:
            chromium.close()
