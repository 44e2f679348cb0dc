"""What Prometheus gets: names by its conventions, figures of this moment, from a real queue."""

import asyncio
import json
import re
import shutil
import signal
import socket
import subprocess
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from embed_pipeline import prometheus
from embed_pipeline.devserver.ports import free_port
from embed_pipeline.domain.errors import SchemaError, UnreachableError
from embed_pipeline.domain.figures import coverage_figures, queue_figures
from embed_pipeline.domain.health import Reading
from embed_pipeline.domain.job import JobStatus, NewJob
from embed_pipeline.domain.prices import Price
from embed_pipeline.loopback_server import LOOPBACK
from embed_pipeline.operations.reading import objectives
from embed_pipeline.operations.scan import Scan
from embed_pipeline.settings import Settings, load_settings
from tests.conftest import TestServer
from tests.support.patience import PATIENCE_SECONDS
from tests.support.project import ROOT, Project
from tests.support.queue_harness import DIMENSIONS, MODEL, Neo4jUnderTest

DASHBOARD = ROOT / "deploy" / "grafana" / "embed-queue.json"
ALERTS = ROOT / "deploy" / "prometheus" / "alerts.yml"
DOCS = ROOT / "docs" / "monitoring.md"
NAME = re.compile(r"\bembed_queue_\w+")
OTHER_UNITS = ("_ms", "_milliseconds", "_minutes", "_hours", "_days", "_percent", "_cents")

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


@pytest.fixture
def environment(neo4j_server: TestServer) -> dict[str, str]:
    return {
        **neo4j_server.environment,
        "EMBED_JOB_RETENTION_DAYS": "14",
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_MODEL": MODEL,
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "OPENAI_API_KEY": "sk-not-a-key",
    }


@pytest.fixture
def settings(environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return load_settings()


@pytest.fixture
def project(environment: dict[str, str], tmp_path: Path) -> Project:
    return Project(tmp_path, environment)


@pytest.fixture
async def busy_queue(queue: Neo4jUnderTest, settings: Settings) -> Neo4jUnderTest:
    """One job of each state but cancelled, and a scan of the entities that has ended."""
    for name, status in (
        ("done", JobStatus.COMPLETED),
        ("broken", JobStatus.FAILED),
        ("leased", JobStatus.PROCESSING),
        ("waiting", JobStatus.PENDING),
    ):
        await queue.in_state(name, status)
    await Scan.begin(queue.queue.reconciler(MODEL)).go_on()
    return queue


def parsed(text: str) -> dict[str, Metric]:
    return {family.name: family for family in text_string_to_metric_families(text)}


def samples(text: str) -> Samples:
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in parsed(text).values()
        for sample in family.samples
    }


async def scrape(settings: Settings) -> str:
    return await asyncio.to_thread(prometheus.text, settings)


async def test_the_figures_are_those_of_the_queue(
    busy_queue: Neo4jUnderTest, settings: Settings
) -> None:
    found = samples(await scrape(settings))

    assert found["embed_queue_up", ()] == 1
    for status in JobStatus:
        expected = 0 if status is JobStatus.CANCELLED else 1
        assert found["embed_queue_jobs", (("status", status.value),)] == expected
    assert found["embed_queue_failed_jobs", (("category", "PERMANENT"),)] == 1
    assert found["embed_queue_ready_jobs", ()] == 1
    about = (("dimensions", str(DIMENSIONS)), ("model", MODEL), ("queue", "default"))
    assert found["embed_queue_info", about] == 1
    assert found["embed_queue_entities", (("coverage", "current"),)] == 1
    assert found["embed_queue_coverage_ratio", ()] == 0.25
    labels = (("check", "schema_present"), ("severity", "error"))
    assert found["embed_queue_check_passed", labels] == 1
    labels = (("check", "few_failed_jobs"), ("severity", "warn"))
    assert found["embed_queue_check_passed", labels] == 0


async def test_a_later_scrape_reads_anew(
    queue: Neo4jUnderTest, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prometheus, "FRESH_SECONDS", 0)
    pending = ("embed_queue_jobs", (("status", "pending"),))
    server, thread = prometheus.serve(settings, port=0)
    try:
        address = f"http://{LOOPBACK}:{server.server_port}/metrics"

        before = await asyncio.to_thread(fetch, address)
        await queue.given_jobs("ada", "bob")
        after = await asyncio.to_thread(fetch, address)
    finally:
        server.shutdown()
        server.server_close()
        thread.join()

    assert (samples(before)[pending], samples(after)[pending]) == (0, 2)


async def test_a_reopened_job_makes_no_counter_fall(
    queue: Neo4jUnderTest, settings: Settings
) -> None:
    await queue.in_state("ada", JobStatus.COMPLETED)
    before = parsed(await scrape(settings))

    await queue.admin.enqueue([NewJob("ada", MODEL, force=True)])
    after = parsed(await scrape(settings))

    counters = [family for family in before.values() if family.type == "counter"]
    assert counters
    for family in counters:
        for old, new in zip(family.samples, after[family.name].samples, strict=True):
            assert new.value >= old.value, family.name
    assert after["embed_queue_revived"].samples[0].value == 1


async def test_the_names_follow_the_conventions(
    busy_queue: Neo4jUnderTest, settings: Settings
) -> None:
    text = await scrape(settings)
    families = parsed(text)

    assert text.endswith("\n")
    for name, family in families.items():
        assert re.fullmatch(r"embed_queue_[a-z]+(_[a-z]+)*", name)
        assert family.documentation.endswith(".")
        assert family.type in ("gauge", "counter")
        assert not name.endswith(OTHER_UNITS)
        for sample in family.samples:
            assert sample.name.endswith("_total") is (family.type == "counter")


async def test_promtool_has_nothing_to_say(busy_queue: Neo4jUnderTest, settings: Settings) -> None:
    program = shutil.which("promtool")
    if program is None:
        pytest.skip("promtool is not on the PATH")

    text = await scrape(settings)
    for command in (["metrics"], ["rules", str(ALERTS)]):
        said = await asyncio.to_thread(
            subprocess.run, [program, "check", *command], input=text, text=True, capture_output=True
        )
        assert said.returncode == 0, said.stdout + said.stderr


async def test_every_figure_is_given_or_left_out_on_purpose(
    busy_queue: Neo4jUnderTest, settings: Settings
) -> None:
    reading = await asyncio.to_thread(prometheus.read, settings)
    assert reading.metrics is not None
    assert reading.coverage is not None
    figures = {*queue_figures(reading.metrics), *coverage_figures(reading.coverage)}

    given = {*prometheus.GAUGES, *(f"{name}_total" for name in prometheus.COUNTERS)}
    by_label = {name for name in figures if name.startswith(("deleted_", "failed_", "entities_"))}
    by_label |= {"pieces"} | {status.value for status in JobStatus}
    sums = {"jobs", "entities", "coverage_percent"}
    over_the_window = {name for name in figures if name.endswith("_in_window")} | {
        "window_seconds",
        "throughput_per_minute",
        "attempts_per_job",
    }
    otherwise = {"seconds_since_recovery", "budget_used_percent"}

    assert given <= figures
    assert figures == given | by_label | sums | over_the_window | otherwise


async def test_what_has_not_happened_yet_has_no_time(
    queue: Neo4jUnderTest, settings: Settings
) -> None:
    families = parsed(await scrape(settings))

    assert "embed_queue_last_recovery_timestamp_seconds" not in families
    assert "embed_queue_coverage_timestamp_seconds" not in families


async def test_a_price_that_is_known_is_given_per_token(
    queue: Neo4jUnderTest, settings: Settings
) -> None:
    reading = await asyncio.to_thread(prometheus.read, settings)

    found = prometheus.families(replace(reading, price=Price(0.02)), objectives(settings))

    [price] = [family for family in found if family.name == "embed_queue_token_price_usd"]
    assert price.samples[0].value == pytest.approx(0.02 / 1_000_000)
    unknown = prometheus.families(replace(reading, price=Price()), objectives(settings))
    assert "embed_queue_token_price_usd" not in {family.name for family in unknown}


async def test_a_missing_schema_is_an_error_once_and_a_figure_for_scrapes(
    queue: Neo4jUnderTest, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = await asyncio.to_thread(prometheus.read, settings)
    missing = replace(reading, schema_problem="run init", metrics=None, coverage=None)
    monkeypatch.setattr(prometheus, "read", lambda _: missing)

    with pytest.raises(SchemaError, match="run init"):
        prometheus.text(settings)
    values = {
        f.name: f.samples[0].value for f in prometheus.families(missing, objectives(settings))
    }
    assert values["embed_queue_up"] == 0
    assert "embed_queue_jobs" not in values


async def test_a_failed_scrape_is_said_once_and_answered_with_down(
    settings: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    def read() -> Reading:
        raise UnreachableError("Cannot reach Neo4j")

    collector = prometheus.QueueCollector(read, wanted=objectives(settings))

    scrapes = [list(collector.collect()) for _ in range(3)]

    assert [[family.name for family in families] for families in scrapes] == [
        ["embed_queue_up"]
    ] * 3
    assert scrapes[0][0].samples[0].value == 0
    assert caplog.messages == ["embed_queue_up is 0: Cannot reach Neo4j"]


def fetch(address: str) -> str:
    with urllib.request.urlopen(address, timeout=PATIENCE_SECONDS) as answer:
        assert answer.headers["Content-Type"].startswith("text/plain; version=")
        return answer.read().decode()


async def exported(settings: Settings) -> list[Sample]:
    """All that a scrape can have, with what depends on what has happened."""
    reading = await asyncio.to_thread(prometheus.read, settings)
    assert reading.metrics is not None
    full = replace(
        reading,
        price=Price(0.02),
        metrics=replace(reading.metrics, last_recovery=reading.metrics.at),
    )
    found = prometheus.families(full, objectives(settings))
    return [sample for family in found for sample in family.samples]


async def test_dashboard_and_alerts_ask_only_for_what_is_exported(
    busy_queue: Neo4jUnderTest, settings: Settings
) -> None:
    known = await exported(settings)
    names = {sample.name for sample in known}
    labels = {pair for sample in known for pair in sample.labels.items()}

    dashboard = json.loads(DASHBOARD.read_text())
    rules = [r for group in yaml.safe_load(ALERTS.read_text())["groups"] for r in group["rules"]]
    expressions = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    expressions += [rule["expr"] for rule in rules]

    assert len(expressions) > 20
    for expression in expressions:
        used = set(NAME.findall(expression))
        assert used
        assert used <= names, expression
        assert set(re.findall(r'(\w+)="([^"]*)"', expression)) <= labels, expression


async def test_the_docs_list_every_name_and_no_other(
    busy_queue: Neo4jUnderTest, settings: Settings
) -> None:
    documented = re.findall(r"^\| `(embed_queue_\w+)", DOCS.read_text(), re.MULTILINE)

    assert sorted(documented) == sorted({sample.name for sample in await exported(settings)})


def test_the_panels_of_the_dashboard_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]

    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]

    assert len(set(cells)) == len(cells)
    assert max(x for x, _ in cells) == 23
    assert len({panel["id"] for panel in panels}) == len(panels)


@pytest.fixture
def prepared(queue: Neo4jUnderTest) -> None:
    """The queue is empty and its schema is there, also for a test that is not asynchronous."""


def test_the_command_prints_the_figures_once(prepared: None, project: Project) -> None:
    said = project.run("metrics")

    assert said.returncode == 0
    assert "embed_queue_up 1.0" in said.stdout


def test_the_command_serves_until_it_is_stopped(prepared: None, project: Project) -> None:
    port = free_port()
    with serving(project, port) as (server, said):
        figures = fetch(f"http://127.0.0.1:{port}/metrics")
        server.send_signal(signal.SIGINT)
        code = server.wait(PATIENCE_SECONDS)

    assert said == f"▸ http://127.0.0.1:{port}/metrics; Ctrl-C stops\n"
    assert "embed_queue_up 1.0" in figures
    assert code == 0


def test_a_port_that_is_taken_is_one_line(project: Project) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        said = project.run("metrics", "--serve", "--port", str(port))

    assert said.returncode == 2
    assert said.stderr == (
        f"✗ --port: {port} cannot be used, another program listens there; choose another one "
        "from 1024 to 65535"
    )


@contextmanager
def serving(project: Project, port: int) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The command at work, and its first line."""
    command = project.command("metrics", "--serve", "--port", str(port))
    with subprocess.Popen(
        command, env=project.variables(), cwd=project.folder, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize("command", [["metrics"], ["report"]])
def test_an_unreachable_server_is_one_line(project: Project, command: list[str]) -> None:
    said = project.run(*command, NEO4J_URI=f"bolt://127.0.0.1:{free_port()}")

    assert said.returncode == 3
    assert said.stderr.startswith("✗ Cannot reach Neo4j at 127.0.0.1:")
    assert "Traceback" not in said.stderr
