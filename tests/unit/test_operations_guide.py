"""The operator's guide: nothing that can be done is missing in it."""

import re

import pytest

from embed_pipeline.defs.build import build_location
from tests.support.project import ROOT
from tests.support.sites import settings_of

GUIDE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
TOPICS = (
    "Cancel jobs",
    "Recovery",
    "Races",
    "Alerts on zombies",
    "Lease tuning",
    "Retry cost",
    "Review of failures",
)


def section(title: str) -> str:
    [found] = re.findall(rf"^### {title}$(.*?)(?=^##|\Z)", GUIDE, re.MULTILINE | re.DOTALL)
    return found


@pytest.mark.parametrize("topic", TOPICS)
def test_m38_m61_each_topic_has_a_command_or_a_query_and_a_place_in_the_ui(topic: str) -> None:
    text = section(topic)

    assert re.search(r"```cypher|`?embed-pipeline \w+|^    \w+", text, re.MULTILINE), topic
    assert re.search(r"→|launchpad|job `?\w+|`\w+_\w+`", text, re.IGNORECASE), topic


def test_m61_every_job_sensor_schedule_and_asset_is_in_the_guide() -> None:
    defs = build_location(settings_of())
    assets = [key.path[-1] for key in defs.resolve_asset_graph().get_all_asset_keys()]
    kinds = (defs.jobs or (), defs.sensors or (), defs.schedules or ())
    names = [*assets, *(thing.name for kind in kinds for thing in kind)]

    assert len(names) >= 20
    assert [name for name in names if name not in GUIDE] == []


def test_every_picture_of_the_docs_is_there() -> None:
    pages = {path: path.read_text(encoding="utf-8") for path in (ROOT / "docs").glob("*.md")}
    pages[ROOT / "README.md"] = (ROOT / "README.md").read_text(encoding="utf-8")

    missing = [
        f"{path.name}: {picture}"
        for path, text in pages.items()
        for picture in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
        if not (path.parent / picture).is_file()
    ]

    assert missing == []
