"""Two operations at once, and the same two one after the other."""

import asyncio
from dataclasses import dataclass, field
from typing import Any, cast

from neo4j import AsyncDriver

from tests.proof.interleavings.gate import Gate, GatedDriver, start
from tests.proof.interleavings.operations import Operation
from tests.proof.interleavings.scenes import READ, Scene, build
from tests.support.queue_harness import Neo4jUnderTest

NOT_COMPARED = {
    *("_lock", "lease_request", "receipts"),  # random numbers
    *("turns", "slots"),  # a lease that lost its job has still had its turn
}


@dataclass(frozen=True)
class Ending:
    """What both callers heard, and what is in the database after it, nodes without order."""

    first: Any
    second: Any
    state: list[dict[str, Any]]

    @property
    def jobs(self) -> list[dict[str, Any]]:
        return [node for node in self.state if "EmbedJob" in node["labels"]]

    @property
    def swapped(self) -> "Ending":
        return Ending(self.second, self.first, self.state)


@dataclass(frozen=True)
class Race:
    """How two at once ended, whether the second waited, and what the database refused."""

    ending: Ending
    has_waited: bool
    errors: list[str]


@dataclass
class Stage:
    """A database that is laid out anew for every race."""

    queue: Neo4jUnderTest
    _scenes: dict[str, Scene] = field(default_factory=dict)
    _endings: dict[tuple[str, Operation, Operation], Ending] = field(default_factory=dict)

    async def steps(self, name: str, operation: Operation) -> int:
        """How many statements the operation has when nobody disturbs it."""
        scene, gate = await self._lay_out(name), Gate()
        await self._perform(operation, scene, gate)
        return gate.statements

    async def race(
        self, name: str, first: Operation, second: Operation, *, stop_after: int
    ) -> Race:
        """Stop the first, let the second run until it waits or ends, then let both run."""
        scene, gate, free = await self._lay_out(name), Gate(stop_after), Gate()
        stopped = asyncio.create_task(self._perform(first, scene, gate))
        await gate.reached.wait()
        rival = await start(self.queue.driver, self._perform(second, scene, free))
        has_waited = not rival.done()
        gate.opened.set()
        one, other = await asyncio.gather(stopped, rival)
        ending = Ending(one, other, await self._state())
        return Race(ending, has_waited, gate.errors + free.errors)

    async def serial(self, name: str, first: Operation, second: Operation) -> list[Ending]:
        """Both ways in which one could have come after the other."""
        one = await self._in_order(name, first, second)
        other = await self._in_order(name, second, first)
        return [one, other.swapped]

    async def _in_order(self, name: str, first: Operation, second: Operation) -> Ending:
        key = (name, first, second)
        if key not in self._endings:
            scene = await self._lay_out(name)
            one = await self._perform(first, scene, Gate())
            other = await self._perform(second, scene, Gate())
            self._endings[key] = Ending(one, other, await self._state())
        return self._endings[key]

    async def scene(self, name: str) -> Scene:
        if name not in self._scenes:
            self._scenes[name] = await build(self.queue, name)
        return self._scenes[name]

    async def _lay_out(self, name: str) -> Scene:
        scene = await self.scene(name)
        await scene.lay_out(self.queue)
        return scene

    async def _perform(self, operation: Operation, scene: Scene, gate: Gate) -> Any:
        driver = cast(AsyncDriver, GatedDriver(self.queue.driver, gate))
        queue = Neo4jUnderTest(driver, self.queue.database, self.queue.clock)
        try:
            return await operation(queue, scene.lease)
        finally:
            # Nobody waits for one that failed on the way.
            gate.reached.set()

    async def _state(self) -> list[dict[str, Any]]:
        """All that is stored, with the keys of jobs in the place of their ids."""
        nodes = [
            {"labels": sorted(row["labels"]), **row["properties"]}
            for row in await self.queue.run(READ)
        ]
        jobs = [node for node in nodes if "EmbedJob" in node["labels"]]
        keys = {job["id"]: f"{job['entity_uid']}/{job['version']}" for job in jobs}
        return sorted(
            (
                {
                    name: keys.get(value, value) if isinstance(value, str) else value
                    for name, value in node.items()
                    if name not in NOT_COMPARED
                }
                for node in nodes
            ),
            key=lambda node: sorted(map(str, node.items())),
        )
