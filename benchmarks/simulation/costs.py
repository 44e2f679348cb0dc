"""What each operation costs, as it was measured; an input of the simulation."""

import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self

FILE: Final = Path(__file__).with_name("costs.toml")
MICROSECOND: Final = 1e-6
HEAD: Final = """\
# Microseconds of processor time, for each job and (…_once) for each transaction or drain.
# Written by `python -m benchmarks --only drains --write-costs`, from the means of all rounds.
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Microseconds: for each job, and once for each transaction."""

    client: float = 0
    """Processor time of the drain."""
    server: float = 0
    """Processor time of Neo4j."""
    wait: float = 0
    """Neither computes: disk, network, locks."""
    client_once: float = 0
    server_once: float = 0
    wait_once: float = 0

    def seconds(self, jobs: int) -> tuple[float, float, float]:
        """Client, server and waiting, for one transaction of so many jobs."""
        return (
            MICROSECOND * (self.client_once + jobs * self.client),
            MICROSECOND * (self.server_once + jobs * self.server),
            MICROSECOND * (self.wait_once + jobs * self.wait),
        )


@dataclass(frozen=True, slots=True)
class Costs:
    """Everything that a drain does to a job, on a machine with ``cores``."""

    about: str
    cores: int
    index: float
    """Microseconds in which a vector enters the vector index, one after the other."""
    start: Cost
    """Of a drain, and its end; once."""
    lease: Cost
    load: Cost
    render: Cost
    find: Cost
    check: Cost
    grant: Cost
    judge: Cost
    heartbeat: Cost
    complete: Cost

    @classmethod
    def read(cls, path: Path = FILE) -> Self:
        """The committed figures."""
        return cls.of(tomllib.loads(path.read_text(encoding="utf-8")))

    @classmethod
    def of(cls, table: Mapping[str, object]) -> Self:
        """Figures of a table as ``written`` makes it."""
        rows = {
            name: Cost(**value) if isinstance(value, dict) else value
            for name, value in table.items()
        }
        return cls(**rows)  # type: ignore[arg-type]

    def written(self) -> str:
        """The text of a file that ``read`` understands."""
        head: list[str] = []
        tables: list[str] = []
        for name, value in asdict(self).items():
            if isinstance(value, dict):
                rows = [f"{key} = {number:g}" for key, number in value.items() if number]
                tables.append("\n".join([f"[{name}]", *rows]))
            else:
                head.append(
                    f'{name} = "{value}"' if isinstance(value, str) else f"{name} = {value:g}"
                )
        return "\n\n".join([HEAD + "\n".join(head), *tables]) + "\n"
