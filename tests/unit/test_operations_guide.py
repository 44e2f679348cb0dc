"""The operator's guide: nothing that can be done is missing in it."""

import re
from functools import cache

import pytest

from embed_pipeline.defs.build import build_location
from tests.support.project import ROOT
from tests.support.run_config_schema import leaves
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


NAME = re.compile(r"`([a-z]+(?:_[a-z]+)+)`")
PLACE = re.compile(r"\*(Catalog|Jobs|Automation) → ([^*→]+?)(?: →[^*]*)?\*")
ANY = {"name", "asset"}
"""What stands in a place for any job or asset."""
FIGURES = {
    *("attempts_per_job", "budget_used_percent", "charged_percent_of_plan", "cost_usd_total"),
    *("charged_tokens_since", "entities_wrong_model", "expired_leases", "failed_jobs"),
    *("fenced_total", "heartbeats_failed_total", "hold_seconds", "holds_clamped"),
    *("oldest_expired_seconds", "oldest_pending_seconds", "recovered_total", "tokens_total"),
    *("requests_limited_total", "requests_total", "seconds_since_recovery", "without_lock"),
    *("throughput_per_minute", "accept_cost"),
    *("tag_concurrency_limits", "worker_concurrency"),
}
"""What else the guide names: figures of readings and runs, an argument of Python's, settings of
Dagster and Celery."""


@cache
def there() -> dict[str, set[str]]:
    """The names of each page of the UI, those of checks, and the fields of run configs."""
    defs = build_location(settings_of())
    graph = defs.resolve_asset_graph()
    jobs = [job for job in defs.resolve_all_job_defs() if not job.name.startswith("__")]
    ticking = [*(defs.sensors or ()), *(defs.schedules or ())]
    return {
        "Catalog": {key.path[-1] for key in graph.get_all_asset_keys()},
        "Jobs": {job.name for job in jobs},
        "Automation": {thing.name for thing in ticking},
        "checks": {key.name for key in graph.asset_check_keys},
        "fields": {step for job in jobs for leaf in leaves(job) for step in leaf.path},
    }


def places_in(text: str) -> list[tuple[str, str]]:
    """Where the text leads in the UI: the page, and what is to be opened there."""
    return [(page, name.strip("`")) for page, name in PLACE.findall(text)]


def test_m61_every_place_in_the_ui_that_the_guide_names_is_there() -> None:
    places = places_in(GUIDE)

    assert len(places) >= 15
    assert [(page, name) for page, name in places if name not in there()[page] | ANY] == []


def test_m61_every_job_sensor_asset_and_check_that_the_guide_names_is_there() -> None:
    named = set(NAME.findall(GUIDE))

    assert len(named & there()["Jobs"]) >= 15
    assert named - set().union(*there().values()) - FIGURES == set()
    assert named >= FIGURES


@pytest.mark.parametrize("topic", TOPICS)
def test_m38_m61_each_topic_has_a_command_or_a_query_and_a_place_in_the_ui(topic: str) -> None:
    text = section(topic)

    assert re.search(r"```cypher|`?embed-pipeline \w+|^    \w+", text, re.MULTILINE), topic
    assert places_in(text) or set(NAME.findall(text)) & set().union(*there().values()), topic


def test_m61_every_job_sensor_schedule_and_asset_is_in_the_guide() -> None:
    names = set().union(*(there()[page] for page in ("Catalog", "Jobs", "Automation")))

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
