"""From a measurement to the costs that the simulation works with."""

import os

from benchmarks import machine, where
from benchmarks.plan import Plan
from benchmarks.simulation.costs import MICROSECOND, Cost, Costs
from benchmarks.site import BATCH
from benchmarks.where import Spent
from embed_pipeline.store.connection import Connection

SMALL: int = 50
"""Batches of a second size tell what a transaction costs by itself."""


def measured_costs(connection: Connection, neo4j_pid: int, plan: Plan) -> Costs:
    """Measure the steps of a drain in large and in small batches, and with a vector index."""
    large = where.measure(connection, neo4j_pid, plan)
    small = where.measure(connection, neo4j_pid, plan, batch=SMALL)
    indexed = where.measure(connection, neo4j_pid, plan, has_index=True)
    index = indexed["complete"].wall - large["complete"].wall
    return Costs(
        about=machine.size(),
        cores=os.cpu_count() or 1,
        index=round(max(0.0, index) / MICROSECOND),
        **{name: cost_of(large[name], small[name]) for name in where.STEPS},
    )


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
