"""Processor time of a deployment: of Dagster with all it has started, and of Neo4j."""

from contextlib import suppress
from dataclasses import dataclass

import psutil

from tests.support.dagster_deployment import Deployment, processes_of


@dataclass(frozen=True, slots=True)
class Usage:
    """Seconds."""

    dagster: float = 0.0
    neo4j: float = 0.0

    @classmethod
    def of(cls, dagster: Deployment, neo4j_pid: int) -> "Usage":
        """Since their processes began."""
        return cls(sum(map(cpu, processes_of(dagster.dagster.group))), cpu(neo4j_pid))

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(self.dagster + other.dagster, self.neo4j + other.neo4j)

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(self.dagster - other.dagster, self.neo4j - other.neo4j)

    def __mul__(self, factor: float) -> "Usage":
        return Usage(self.dagster * factor, self.neo4j * factor)


def cpu(pid: int) -> float:
    """Of a process and those of its children that have ended; 0 where it is gone."""
    with suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return times.user + times.system + times.children_user + times.children_system
    return 0.0
