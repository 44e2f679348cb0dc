"""From a measurement to the costs that the simulation works with."""

import asyncio
import os
from collections.abc import Mapping

from benchmarks import machine
from benchmarks.plan import Plan
from benchmarks.rounds import SMALL
from benchmarks.simulation.costs import MICROSECOND, Cost, Costs
from benchmarks.site import BATCH, opened
from benchmarks.where import STEPS, Spent, mean, steps
from embed_pipeline.store.connection import Connection

INDEX_ROUNDS = 3
LEASE_ROUNDS = 3


def costs_of(large: Mapping[str, Spent], small: Mapping[str, Spent], start: Spent) -> Costs:
    """The costs behind the steps in large and in small batches, without a vector index."""
    return Costs(
        about=machine.size(),
        cores=os.cpu_count() or 1,
        index=0,
        start=Cost(0, 0, 0, *_rounded(start)),
        **{name: cost_of(large[name], small[name]) for name in STEPS},
    )


def costs_now(connection: Connection, neo4j_pid: int, plan: Plan) -> Costs:
    """The costs of the steps without those of whole drains around them."""

    async def work() -> tuple[Mapping[str, Spent], Mapping[str, Spent]]:
        async with opened(connection) as site:
            await site.prepare(plan.entities, has_index=False)
            rounds = [
                [await steps(site, neo4j_pid, plan.entities, batch=size) for size in (BATCH, SMALL)]
                for _ in range(LEASE_ROUNDS)
            ]
        large, small = zip(*rounds, strict=True)
        return mean(large), mean(small)

    return costs_of(*asyncio.run(work()), Spent())


def cost_of_index(
    connection: Connection, neo4j_pid: int, plan: Plan, without: Mapping[str, Spent]
) -> int:
    """How many microseconds longer a completion takes for each vector with a vector index."""

    async def work() -> Mapping[str, Spent]:
        async with opened(connection) as site:
            await site.prepare(plan.indexed_entities, has_index=True)
            return mean(
                [
                    await steps(site, neo4j_pid, plan.indexed_entities, batch=BATCH)
                    for _ in range(INDEX_ROUNDS)
                ]
            )

    seconds = asyncio.run(work())["complete"].wall - without["complete"].wall
    return round(max(0.0, seconds) / MICROSECOND)


def cost_of(large: Spent, small: Spent) -> Cost:
    """Divide the seconds per job of two sizes into a part per job and one per transaction."""
    each = (large * BATCH - small * SMALL) * (1 / (BATCH - SMALL))
    once = (small - large) * (BATCH * SMALL / (BATCH - SMALL))
    return Cost(
        *_rounded(each),
        *_rounded(once),
    )


def _rounded(spent: Spent) -> tuple[int, int, int]:
    """Whole microseconds; a server with several threads may compute more than it takes."""
    wait = spent.wall - spent.client - spent.server
    client, server, waiting = (
        round(max(0.0, seconds) / MICROSECOND) for seconds in (spent.client, spent.server, wait)
    )
    return client, server, waiting
