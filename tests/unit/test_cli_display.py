"""What the operator reads, without a database."""

import asyncio
import io
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import typer
from rich.console import Console
from typer.testing import CliRunner

from embed_pipeline.cli import base as cli_base, drain_display, mcp
from embed_pipeline.cli.app import app
from embed_pipeline.cli.base import as_plain, confirm, duration, safe
from embed_pipeline.cli.drain import report_rows
from embed_pipeline.cli.drain_display import DrainDisplay, Outlook, Progress
from embed_pipeline.cli.status import status_rows
from embed_pipeline.domain.breaker import Breaker, BreakerStatus
from embed_pipeline.domain.errors import EmbedPipelineError, ErrorCategory
from embed_pipeline.domain.holds import Hold, Origin
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.metrics import QueueMetrics, QueueState
from embed_pipeline.domain.prices import Price
from embed_pipeline.domain.results import FailureOutcome, Hit
from embed_pipeline.domain.words import exactly, span
from embed_pipeline.worker.report import DrainReport, Ending

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
COMMANDS = {
    ("drain",): ("--once", "--watch", "--max-jobs", "--max-seconds", "--concurrency"),
    ("status",): ("--json", "--coverage", "--window"),
    ("enqueue",): ("--stdin", "--priority", "--force"),
    ("reconcile",): ("--page-size", "--limit", "--dry-run", "--force", "--older-than"),
    ("search",): ("--limit", "--json"),
    ("plan",): ("--model", "--json"),
    ("quality",): ("--json",),
    ("compare",): ("--models", "--templates", "--picture", "--yes", "--json"),
    ("doctor",): ("--settings-only", "--probe", "--json"),
    ("recover",): ("--limit",),
    ("cleanup",): ("--dry-run",),
    ("pause",): (),
    ("audit", "log"): ("--since", "--action", "--limit", "--json"),
    ("support",): ("--out",),
    ("neo4j", "dump"): ("--force", "--restart"),
    ("neo4j", "load"): ("--force", "--restart"),
    ("resume",): ("--close-breaker",),
    ("init",): ("--with-triggers", "--without-triggers", "--change-model"),
    ("cutover", "start"): ("--model", "--provider", "--dimensions", "--yes"),
    ("cutover", "status"): ("--json",),
    ("cutover", "go"): (),
    ("cutover", "rollback"): (),
    ("cutover", "finish"): ("--grace", "--force", "--yes"),
    ("limits",): ("--json", "clear"),
    ("limits", "clear"): ("--preview", "--yes"),
    ("jobs", "list"): ("--status", "--category", "--model", "--entity", "--older-than", "--json"),
    ("jobs", "show"): ("--json",),
    ("jobs", "retry"): ("--category", "--preview", "--yes"),
    ("jobs", "cancel"): ("--status", "--preview", "--reason", "--yes"),
    ("jobs", "restore"): ("--entity", "--preview", "--yes"),
    ("jobs", "release"): ("--owner", "--crashed"),
}


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_help_shows_the_options(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"], env={"COLUMNS": "120", "NO_COLOR": "1"})

    assert result.exit_code == 0
    for option in COMMANDS[command]:
        assert option in result.output


@pytest.mark.parametrize(
    ("text", "seconds"), [("30s", 30), ("15m", 900), ("2h", 7_200), ("7d", 604_800)]
)
def test_a_duration_has_a_unit(text: str, seconds: int) -> None:
    assert duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "h", "-1h", "1.5h", "2 h", "1w", "0s", "999999d", "9999999d"]
)
def test_anything_else_is_no_duration(text: str) -> None:
    with pytest.raises(typer.BadParameter, match="30s, 15m, 2h or 7d"):
        duration(text)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        *((-1, "0 s"), (0, "0 s"), (59, "59 s"), (60, "1 min"), (90, "90 s"), (120, "2 min")),
        *((3_600, "1 h"), (7_500, "2 h 5 min"), (360_000, "4 d 4 h"), (604_800, "7 d")),
    ],
)
def test_a_duration_has_at_most_two_units(seconds: int, words: str) -> None:
    assert span(timedelta(seconds=seconds)) == span(seconds) == words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.2, "0.2 s"),
        (1.5, "1.5 s"),
        (60, "1 min"),
        (150, "150 s"),
        (300, "5 min"),
        (86_400, "24 h"),
    ],
)
def test_a_duration_that_was_set_is_not_rounded(seconds: float, words: str) -> None:
    assert exactly(timedelta(seconds=seconds)) == words


def test_a_text_of_others_moves_no_cursor_and_is_no_markup() -> None:
    assert safe("\x1b[2J[red]boom\x07") == "�[2J\\[red]boom�"


def test_json_has_times_in_iso_and_durations_in_seconds() -> None:
    plain = as_plain(QueueState(Breaker(BreakerStatus.OPEN, "why", NOW), paused_since=NOW))

    assert plain["paused_since"] == "2026-01-02T03:04:05+00:00"
    assert plain["breaker"]["status"] == "open"
    assert as_plain({JobStatus.PENDING: timedelta(minutes=1)}) == {"pending": 60.0}


def test_without_a_terminal_a_question_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cli_base.sys, "stdin", io.StringIO("y\n"))

    with pytest.raises(EmbedPipelineError, match=r"Cancel 3 jobs\?.*--yes"):
        confirm("Cancel 3 jobs?", yes=False)
    confirm("Cancel 3 jobs?", yes=True)


def test_progress_says_done_left_rate_eta_failed_and_limit() -> None:
    progress = Progress(done=120, failed=2, left=240, seconds=60.0, wait=12.2)

    assert str(progress) == (
        "120 done · 240 left · 2.0/s · ETA 2 min · 2 failed · rate limit: next request in 12 s"
    )


def test_progress_invents_nothing_it_does_not_know() -> None:
    assert str(Progress(done=0, failed=0, left=None, seconds=0.0)) == "0 done"
    assert str(Progress(done=0, failed=0, left=5, seconds=3.0)) == "0 done · 5 left"


@pytest.mark.parametrize("is_live", [True, False])
async def test_m72_who_watches_a_drain_sees_why_it_gets_no_job(
    is_live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_display, "PLAIN_SECONDS", 0.01)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=is_live, highlight=False, width=150)
    down = Breaker(BreakerStatus.OPEN, "[503]", since=NOW, probe_at=NOW + MINUTE, is_outage=True)

    async def look() -> Outlook:
        return Outlook(left=3, closed=QueueState(down).closed)

    async with DrainDisplay(console, DrainReport("o", "m"), look, is_live=is_live):
        await asyncio.sleep(0.1)

    assert (
        "0 done · 3 left · provider down since 2026-01-02 03:04:05 UTC, next try at "
        "2026-01-02 03:05:05 UTC: [503]"
    ) in screen.getvalue()
    assert QueueState(Breaker()).closed is None


@pytest.mark.parametrize("is_live", [True, False])
async def test_control_characters_are_for_terminals_only(
    is_live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(drain_display, "PLAIN_SECONDS", 0.01)
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=is_live, highlight=False, width=100)
    report = DrainReport(owner="o", model="m", completed=7)

    async def look() -> Outlook:
        return Outlook(left=3)

    async with DrainDisplay(console, report, look, is_live=is_live):
        await asyncio.sleep(0.1)

    assert "7 done · 3 left" in screen.getvalue()
    assert ("\x1b" in screen.getvalue()) is is_live


async def test_a_display_that_cannot_look_ends_no_drain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drain_display, "PLAIN_SECONDS", 0.01)
    screen = io.StringIO()
    report = DrainReport(owner="o", model="m", completed=7)

    async def look() -> Outlook:
        raise OSError("the database is away")

    async with DrainDisplay(Console(file=screen), report, look, is_live=False):
        await asyncio.sleep(0.05)

    assert "7 done" in screen.getvalue()


async def test_each_kind_of_error_is_said_once_while_the_drain_works(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(drain_display, "PLAIN_SECONDS", 0.01)
    screen = io.StringIO()
    report = DrainReport(owner="o", model="m")

    async def look() -> Outlook:
        return Outlook()

    async with DrainDisplay(Console(file=screen), report, look, is_live=False):
        for message in ("timed out after 3 s", "timed out after 4 s", "[red]no"):
            report.note_error(ErrorCategory.TRANSIENT, message, FailureOutcome.RETRY)
            await asyncio.sleep(0.05)

    said = [line for line in screen.getvalue().splitlines() if line.startswith("!")]
    assert said == ["! TRANSIENT: timed out after 3 s", "! TRANSIENT: [red]no"]


def test_a_report_names_failures_cost_waiting_and_why_it_ended() -> None:
    report = DrainReport(
        owner="o",
        model="text-embedding-3-small",
        price=Price(0.02),
        completed=90,
        failed=Counter({ErrorCategory.PERMANENT: 2, ErrorCategory.TRANSIENT: 1}),
        released=4,
        given_back=3,
        requests=5,
        tokens=1_000_000,
        seconds=30.0,
        seconds_waiting=12.0,
        ending=Ending.CLOSED,
        reason="paused by ada",
    )
    report.note_error(ErrorCategory.TRANSIENT, "oops", FailureOutcome.RETRY)

    rows = dict(report_rows(report))

    assert rows["Completed"] == "90 (3.0 per second)"
    assert rows["Failed"] == "1 TRANSIENT, 2 PERMANENT"
    assert rows["Given back"] == "7"
    assert rows["Error"] == "1 TRANSIENT: oops"
    assert rows["Requests"] == "5, 1000000 tokens, $0.0200"
    assert rows["Time"] == "30.0 s, 12.0 s waiting for the limit"
    assert rows["Ended because"] == "the queue gives out no jobs: paused by ada"
    assert "Recovered" not in rows


@pytest.mark.parametrize(("failures", "done"), [(1, "opened"), (2, "kept open")])
def test_r12_a_drain_says_that_it_has_left_the_breaker_open(failures: int, done: str) -> None:
    report = DrainReport(owner="o", model="m", ending=Ending.CRITICAL, reason="401")
    silent = dict(report_rows(report))
    report.breaker = Breaker(BreakerStatus.OPEN, "401", probe_at=NOW, failures=failures)

    rows = dict(report_rows(report))

    assert "Breaker" not in silent
    assert rows["Breaker"] == (
        f"{done}, no drain gets jobs before the next try at {NOW:%Y-%m-%d %H:%M:%S} UTC, or before "
        "'embed-pipeline resume --close-breaker'"
    )


def test_m72_status_says_that_the_provider_is_down() -> None:
    breaker = Breaker(
        BreakerStatus.OPEN,
        "503",
        since=NOW - timedelta(minutes=5),
        probe_at=NOW + timedelta(seconds=40),
        is_outage=True,
    )

    rows = dict(status_rows(reading(QueueState(breaker)), MINUTE))

    down, then = "2026-01-02 02:59:05 UTC", "2026-01-02 03:04:45 UTC"
    assert rows["Breaker"] == f"open: provider down since {down}, next try at {then}: 503"


def test_m72_a_try_that_is_due_is_no_time_in_the_past() -> None:
    down = Breaker(BreakerStatus.OPEN, "503", since=NOW - MINUTE, probe_at=NOW, is_outage=True)

    rows = dict(status_rows(reading(QueueState(down)), MINUTE))

    assert rows["Breaker"] == (
        "open: provider down since 2026-01-02 03:03:05 UTC, tried again by the next drain: 503"
    )


def test_status_says_how_many_jobs_others_have_edited() -> None:
    metrics = reading(QueueState(Breaker()))

    rows = dict(status_rows(replace(metrics, unadopted=3), MINUTE))

    assert "Edited by others" not in dict(status_rows(metrics, MINUTE))
    said = rows["Edited by others"]
    assert said == "3 jobs not yet put right; the next scan does it at the latest"


def test_status_says_since_when_and_why_nothing_is_given_out() -> None:
    breaker = Breaker(
        BreakerStatus.OPEN,
        "key refused",
        since=NOW - timedelta(minutes=5),
        probe_at=NOW + timedelta(seconds=40),
    )
    state = QueueState(breaker, is_paused=True, paused_by="ada", paused_since=NOW)

    rows = dict(status_rows(reading(state), MINUTE))

    assert rows["Paused"] == "since 2026-01-02 03:04:05 UTC (0 s) by ada"
    assert rows["Breaker"] == (
        "open since 2026-01-02 02:59:05 UTC (5 min): key refused; one job may be tried in 40 s"
    )
    assert rows["Pending"] == "6 (3 ready, 2 to be tried again later, 1 due to be tried again)"
    assert rows["Failed"] == "4 (4 PERMANENT)"
    assert rows["Oldest waiting"] == "2 h"
    assert rows["Expired leases"] == "1, the oldest for 30 s"
    assert rows["Last 5 min"] == "10 completed (2.0 per minute), 1 failed, 0 cancelled"


def test_status_says_how_long_the_provider_is_not_asked_and_why() -> None:
    hold = Hold(NOW, NOW + 10 * MINUTE, timedelta(days=1), Origin("acme", "run-1", "slow down"))

    rows = dict(status_rows(replace(reading(QueueState(Breaker())), hold=hold), MINUTE))

    assert rows["Queue"] == "open"
    assert rows["Held"] == (
        "for 10 min: the provider told run-1 of queue acme to wait until 2026-01-02 03:14:05 UTC: "
        '"slow down" (it wanted 24 h, cut to 15 min); '
        "'embed-pipeline limits clear' or the job clear_limits ends it"
    )


@pytest.mark.parametrize(
    ("ago", "interval", "row"),
    [
        (timedelta(seconds=40), MINUTE, ("Last recovery", "40 s ago")),
        (timedelta(seconds=150), MINUTE, ("Last recovery", "2 min ago")),
        (timedelta(minutes=3), MINUTE, ("Recovery overdue", "the last one was 3 min ago")),
        (timedelta(days=3), timedelta(0), None),
        (None, MINUTE, None),
    ],
)
def test_status_says_when_dagster_gives_no_sign_of_life(
    ago: timedelta | None, interval: timedelta, row: tuple[str, str] | None
) -> None:
    last = None if ago is None else NOW - ago
    metrics = replace(reading(QueueState(Breaker())), last_recovery=last)

    found = [item for item in status_rows(metrics, interval) if "ecovery" in item[0]]

    assert [(name, value.partition(";")[0]) for name, value in found] == ([row] if row else [])


def reading(state: QueueState) -> QueueMetrics:
    counts = dict.fromkeys(JobStatus, 0)
    return QueueMetrics(
        at=NOW,
        counts=counts | {JobStatus.PENDING: 6, JobStatus.FAILED: 4},
        ready=3,
        delayed=2,
        due_retries=1,
        suspects=0,
        oldest_pending=timedelta(hours=2),
        expired_leases=1,
        oldest_expired=timedelta(seconds=30),
        without_lock=0,
        window=timedelta(minutes=5),
        completed_in_window=10,
        failed_in_window=1,
        cancelled_in_window=0,
        attempts={1: 10},
        categories={ErrorCategory.PERMANENT: 4},
        counters={},
        state=state,
    )


@pytest.mark.parametrize(
    ("number", "variables", "name"),
    [
        (0, {}, "root"),
        (0, {"SUDO_USER": "alice"}, "alice (sudo)"),
        (0, {"SUDO_USER": "root"}, "root"),
        (
            12345678,
            {"SUDO_USER": "alice", "LOGNAME": "mallory", "USER": "mallory"},
            "user 12345678",
        ),
    ],
)
def test_the_operator_is_the_user_of_the_process_not_what_a_variable_says(
    monkeypatch: pytest.MonkeyPatch, number: int, variables: dict[str, str], name: str
) -> None:
    monkeypatch.delenv("SUDO_USER", raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.setattr("os.getuid", lambda: number)

    assert str(cli_base.operator()) == f"{name} on the command line"


async def test_an_agent_gets_the_passage_of_a_long_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pieces are nodes; a short text is its own piece, and is not told twice."""
    hits = [
        Hit("long", None, 0.9, "x" * 9_000 + "found", "found", passage="it is found here"),
        Hit("short", None, 0.8, "found", "found", passage="found"),
        Hit("mean", None, 0.7, "found", "found"),
    ]

    async def search_for(*_: object, **__: object) -> list[Hit]:
        return hits

    async def relations_of(*_: object) -> dict[str, list[str]]:
        return {}

    monkeypatch.setattr("embed_pipeline.operations.search.search_for", search_for)
    monkeypatch.setattr("embed_pipeline.store.explain.relations_of", relations_of)
    nothing: Any = None

    found = (await mcp._search(nothing, nothing, "question", 10))["hits"]

    assert [hit.get("passage") for hit in found] == ["it is found here", None, None]
    assert found[0]["text"] == "x" * 2_000
