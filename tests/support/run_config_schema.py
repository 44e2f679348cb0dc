"""Everything that a run config can say, read from the schema that Dagster validates it with."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import dagster as dg

ITEM = "[]"
"""A step of a path: into the entries of a list."""
VALID = "x" * 8
"""For a field that is required beside the one that is tried."""


@dataclass(frozen=True)
class Leaf:
    """A place in a run config where a value can stand, and the kind of value."""

    path: tuple[str, ...]
    kind: str

    def __str__(self) -> str:
        return ".".join(self.path)

    def holding(self, value: Any, beside: Mapping[str, Any]) -> dict[str, Any]:
        """A run config with a value at this place; ``beside`` goes into the same mapping."""
        config: Any = value
        for step in reversed(self.path):
            config = [config] if step == ITEM else {step: config}
            if isinstance(config, dict) and config.keys() != {"config"} and beside:
                config, beside = {**beside, **config}, {}
        return config


def leaves(job: dg.JobDefinition) -> Iterator[Leaf]:
    """Every place for a value in the run config of a job, lists as a whole and by entry."""
    yield from _leaves(job.run_config_schema.config_type, ())


def _leaves(kind: Any, path: tuple[str, ...]) -> Iterator[Leaf]:
    match kind.kind.name:
        case "STRICT_SHAPE" | "PERMISSIVE_SHAPE" | "SELECTOR":
            for name, field in kind.fields.items():
                yield from _leaves(field.config_type, (*path, name))
        case "NONEABLE":
            yield from _leaves(kind.inner_type, path)
        case "ARRAY":
            yield Leaf(path, "ARRAY")
            yield from _leaves(kind.inner_type, (*path, ITEM))
        case "SCALAR" | "ENUM" | "SCALAR_UNION" | "ANY" as name:
            yield Leaf(path, name)
        case unknown:
            raise NotImplementedError(f"{path}: nobody has said what a {unknown} may hold")


def required_beside(job: dg.JobDefinition, leaf: Leaf) -> dict[str, Any]:
    """The other fields that a config must have where this one stands."""
    kind: Any = job.run_config_schema.config_type
    found: dict[str, Any] = {}
    for step in leaf.path:
        while kind.kind.name == "NONEABLE":
            kind = kind.inner_type
        if step == ITEM:
            kind = kind.inner_type
            continue
        for name, field in kind.fields.items():
            if name != step and field.is_required:
                found[name] = VALID
        kind = kind.fields[step].config_type
    return found
