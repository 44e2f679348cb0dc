"""Two operations that meet at one job end as if one had come after the other.

The first is stopped after each of its statements in turn, with the locks it holds; the second
runs until it ends or waits for one of them; then both run to their ends. So every check that is
not under a lock has the other operation between itself and its write, and every lock has somebody
who waits for it.
"""

from collections.abc import AsyncIterator

import pytest

from embed_pipeline.store.connection import open_driver
from tests.proof.interleavings.operations import OPERATIONS
from tests.proof.interleavings.race import Stage
from tests.support.queue_harness import Neo4jUnderTest, assert_consistent

CLIENTS = ("update", "new_version", "delete")
MOVES = {
    "waiting": ("lease", "cancel", *CLIENTS),
    "expired": ("heartbeat", "complete", "fail", "release", "recover", "cancel", *CLIENTS),
    "failed": ("retry", "cleanup", *CLIENTS),
    "completed": ("cleanup", *CLIENTS),
    "suspects": ("lease_suspects", "cancel", "update"),
    "last": ("recover", "complete", "fail"),
}
"""Which operations change what they find in a scene; the others only look."""

TOGETHER = [
    (scene, first, second) for scene, moves in MOVES.items() for first in moves for second in moves
]
"""Each of the two changes the scene, so that the other one finds it changed."""

REST = [
    (next(scene for scene, moves in MOVES.items() if first in moves), first, second)
    for first in OPERATIONS
    for second in OPERATIONS
    if (first, second) not in {(x, y) for _, x, y in TOGETHER}
]
"""The second has nothing to do, but must not be misled either."""


NEWEST = pytest.param("neo4j_2026", marks=pytest.mark.proof)


@pytest.fixture(scope="module", params=["neo4j", NEWEST])
async def stage(request: pytest.FixtureRequest) -> AsyncIterator[Stage]:
    server = request.getfixturevalue(f"{request.param}_server")
    async with open_driver(server.connection) as driver:
        yield Stage(Neo4jUnderTest(driver, server.database))


@pytest.mark.parametrize(
    ("scene", "first", "second"),
    [*TOGETHER, *(pytest.param(*pair, marks=pytest.mark.proof) for pair in REST)],
)
async def test_two_at_once_end_as_one_after_the_other(
    stage: Stage, scene: str, first: str, second: str
) -> None:
    one, other = OPERATIONS[first], OPERATIONS[second]
    possible = await stage.serial(scene, one, other)
    last = await stage.steps(scene, one)

    stop = 1
    while stop <= last:
        race = await stage.race(scene, one, other, stop_after=stop)

        assert race.ending in possible, f"stopped after statement {stop} of {last}"
        assert race.errors == []
        assert_consistent(race.ending.jobs)
        # Locks have one order, so whoever waits already would wait at the same place from here on.
        stop = last if race.has_waited and stop < last else stop + 1


def test_every_pair_of_operations_meets() -> None:
    assert {(first, second) for _, first, second in TOGETHER + REST} == {
        (first, second) for first in OPERATIONS for second in OPERATIONS
    }
