"""What the benchmarks make of their measurements."""

import asyncio
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from unittest.mock import Mock

import pytest
from neo4j.exceptions import TransientError

from benchmarks import deployed, instead, latency
from benchmarks.__main__ import FURTHER, SLOW, chosen, parser
from benchmarks.plan import QUICK
from benchmarks.rivals import Repeats
from benchmarks.table import Line, at_least, at_most, between, found_by, verdict
from embed_pipeline.store.connection import Connection
from embed_pipeline.store.database import Database


def line(*ratios: float, goal: object = None) -> Line:
    return Line(1, "what", "measured", ratios, goal)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("goal", "ratios", "met"),
    [
        (at_least(0.7), (0.6, 0.7, 0.9), True),
        (at_least(0.7), (0.6, 0.69, 0.9), False),
        (at_most(2), (1.0, 2.0, 9.0), True),
        (at_most(2), (1.0, 2.1, 9.0), False),
        (at_most(0), (0.0,), True),
        (between(0.8, 1.2), (0.1, 0.8, 9.0), True),
        (between(0.8, 1.2), (0.1, 0.79, 9.0), False),
        (between(0.8, 1.2), (0.1, 1.21, 9.0), False),
        (None, (1.0,), None),
    ],
)
def test_the_median_decides_about_a_goal(
    goal: object, ratios: tuple[float, ...], met: bool | None
) -> None:
    assert line(*ratios, goal=goal).is_met is met


def test_a_goal_that_was_not_measured_is_missed() -> None:
    assert line(goal=at_least(1)).is_met is False


def test_a_part_that_fails_keeps_its_lines_and_misses_a_goal() -> None:
    def broken() -> Iterator[Line]:
        yield line(2.0, goal=at_least(1))
        raise RuntimeError("1 | 2\nlines")

    lines = list(found_by("peers", broken))

    assert verdict(lines) == (1, 2)
    assert "| the part peers could not be measured | RuntimeError: 1 / 2 lines |" in str(lines[1])


class BusyDriver:
    """Ends the first transactions; a driver and its session."""

    def __init__(self, busy: int) -> None:
        self.busy = busy

    def session(self, **_: Any) -> "BusyDriver":
        return self

    async def __aenter__(self) -> "BusyDriver":
        return self

    async def __aexit__(self, *_: object) -> None:
        return

    async def execute_write(self, work: Any) -> Any:
        if self.busy:
            self.busy -= 1
            raise TransientError
        return await work(self)


async def test_transactions_that_the_store_repeats_are_counted() -> None:
    async def work(_: Any) -> str:
        return "done"

    database = Database(BusyDriver(2), patience=timedelta(minutes=5))  # type: ignore[arg-type]
    with Repeats.counted() as repeats:
        answers = [await database.write(work) for _ in range(2)]

    assert (answers, repeats.seen) == (["done", "done"], 2)


def test_a_part_that_measures_nothing_misses_a_goal() -> None:
    assert verdict(found_by("instead", lambda: ())) == (0, 1)


def test_packages_that_cannot_be_installed_miss_their_goals(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_: object) -> None:
        pytest.skip("the registry cannot be reached")

    monkeypatch.setattr(instead, "python_with", refuse)
    connection = Connection("bolt://127.0.0.1:1", "nobody", "nothing", "none")

    lines = list(instead.lines(connection, QUICK, nodes=10))

    assert verdict(lines) == (0, 2)
    assert all("the registry cannot be reached" in line.measured for line in lines)


@pytest.mark.parametrize(
    ("arguments", "left_out"),
    [
        ((), FURTHER),
        (("--quick",), FURTHER | SLOW),
        (("--all",), set()),
    ],
)
def test_what_is_measured_unless_parts_are_named(
    arguments: tuple[str, ...], left_out: set[str]
) -> None:
    names = [*FURTHER, *SLOW, "peers"]

    assert set(chosen(parser().parse_args(arguments), names)) == set(names) - left_out


def test_a_part_that_is_named_is_measured_by_the_quick_run_too() -> None:
    arguments = parser().parse_args(["--quick", "--only", "instead,peers"])

    assert chosen(arguments, ["instead", "peers", "rivals"]) == ["instead", "peers"]


def test_a_part_that_nobody_knows_is_refused() -> None:
    with pytest.raises(SystemExit, match="--only knows peers; not pears"):
        chosen(parser().parse_args(["--only", "pears"]), ["peers"])


class SlowSite:
    """Notes what is done; ``seconds`` pass after it, as for the end of a connection."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.done: list[str] = []
        self.queue = self.admin = self

    async def run(self, *_: Any, **__: Any) -> None:
        self.done.append("written")

    async def enqueue(self, _: Any) -> None:
        self.done.append("enqueued")

    def visited(self, _: Any, work: Any, *args: Any) -> float:
        return asyncio.run(work(self, *args)) - self.seconds


def test_a_wait_for_the_search_begins_when_the_write_is_acknowledged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    site, dagster = SlowSite(100), Mock()
    dagster.graph.run.return_value = [{"uid": "e"}]
    monkeypatch.setattr(latency, "on_site", site.visited)

    seconds = latency.wait_for(Mock(), dagster, "e")

    assert site.done == ["written", "enqueued"]
    assert seconds >= 100


def test_a_rate_at_work_leaves_the_start_out() -> None:
    looks = [(0.0, 0), (10.0, 0), (11.0, 500), (12.0, 900), (21.0, 5_500)]

    assert deployed.rate_at_work(looks) == 500


def test_only_lines_with_a_goal_are_counted() -> None:
    lines = [line(2.0, goal=at_least(1)), line(0.5, goal=at_least(1)), line(3.0)]

    assert verdict(lines) == (1, 2)


def test_a_line_shows_median_spread_goal_and_verdict() -> None:
    shown = str(line(0.5, 0.25, 1234.0, goal=at_least(0.7)))

    assert shown == "| 1 | what | measured | 0.50 (0.25–1,234) | ≥ 0.70 | **no** |"


def test_a_goal_with_two_sides_shows_both() -> None:
    assert str(between(0.8, 1.2)) == "≥ 0.80, ≤ 1.20"
