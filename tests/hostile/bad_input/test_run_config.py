"""What a run config can say at all: bounded numbers, choices, and texts with a pattern.

Whoever can open a page in the browser of an operator may launch a run with any config.
"""

import typing
from collections.abc import Iterator
from typing import Any

import dagster as dg
import pytest
from pydantic import ValidationError

from embed_pipeline.defs.config import RunConfig
from tests.defs.conftest import fresh_definitions
from tests.hostile.bad_input.hostile import HOSTILE_NAMES

LONGEST_TEXT = 512
MOST_ENTRIES = 1_000
CONTROL = ("a\x00b", "a\nb", "a\x1b[31m", "\x7f", "\x85")


@pytest.fixture
def jobs(monkeypatch: pytest.MonkeyPatch) -> list[dg.JobDefinition]:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    return list(fresh_definitions().resolve_all_job_defs())


def configs_of(jobs: list[dg.JobDefinition]) -> dict[str, type[dg.Config]]:
    """The class behind each config, by job; Dagster's own schema knows no bounds."""
    found: dict[str, type[dg.Config]] = {}
    for job in jobs:
        for node in job.all_node_defs:
            function = getattr(getattr(node, "compute_fn", None), "decorated_fn", None)
            hint = typing.get_type_hints(function).get("config") if function else None
            if hint is not None:
                found[job.name] = hint
    return found


def fields_of(config: type[dg.Config]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every field with the JSON schemas of all that it can be."""
    schema = config.model_json_schema()
    for name, field in schema.get("properties", {}).items():
        yield from ((name, leaf) for leaf in leaves(field, schema.get("$defs", {})))


def leaves(schema: dict[str, Any], known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if "$ref" in schema:
        yield from leaves(known[schema["$ref"].rpartition("/")[2]], known)
    elif "anyOf" in schema:
        for choice in schema["anyOf"]:
            yield from leaves(choice, known)
    else:
        yield schema
        if schema.get("type") == "array":
            yield from leaves(schema["items"], known)


def is_bounded(schema: dict[str, Any]) -> bool:
    match schema.get("type"):
        case "boolean" | "null":
            return True
        case "integer" | "number":
            return {"minimum", "maximum"} <= schema.keys()
        case "array":
            return schema.get("maxItems", MOST_ENTRIES + 1) <= MOST_ENTRIES
        case "string":
            is_short = schema.get("maxLength", LONGEST_TEXT + 1) <= LONGEST_TEXT
            return "enum" in schema or (is_short and "pattern" in schema)
    return False


def test_every_op_that_takes_a_config_is_looked_at(jobs: list[dg.JobDefinition]) -> None:
    typed = {
        job.name
        for job in jobs
        for node in job.all_node_defs
        if isinstance(node, dg.OpDefinition)
        and isinstance(kind := node.config_schema.config_type, dg.Shape)
        and kind.fields
    }

    assert configs_of(jobs).keys() == typed
    assert len(typed) >= 8


def test_no_job_takes_a_free_text_or_an_unbounded_number(jobs: list[dg.JobDefinition]) -> None:
    free = [
        f"{job}.{name}: {schema}"
        for job, config in configs_of(jobs).items()
        for name, schema in fields_of(config)
        if not is_bounded(schema)
    ]

    assert free == []


def test_every_config_hides_what_it_refuses(jobs: list[dg.JobDefinition]) -> None:
    assert [job for job, c in configs_of(jobs).items() if not issubclass(c, RunConfig)] == []
    assert RunConfig.model_config.get("hide_input_in_errors")


def bad_values(schema: dict[str, Any]) -> list[Any]:
    match schema.get("type"):
        case "integer" | "number":
            return [schema["minimum"] - 1, schema["maximum"] + 1, "many", float("nan"), None]
        case "boolean":
            return ["perhaps", 7]
        case "string" if "enum" in schema:
            return ["FATAL", *HOSTILE_NAMES]
        case "string":
            return ["x" * (schema["maxLength"] + 1), *CONTROL, 7]
        case "array":
            return [["a"] * (schema["maxItems"] + 1), "no list"] if "maxItems" in schema else []
    return []


def test_a_value_out_of_bounds_cannot_even_be_read(jobs: list[dg.JobDefinition]) -> None:
    tried = 0
    for config in configs_of(jobs).values():
        required = {n: "x" * 8 for n, field in config.model_fields.items() if field.is_required()}
        for name, schema in fields_of(config):
            nullable = any(s.get("type") == "null" for n, s in fields_of(config) if n == name)
            is_list = any(s.get("type") == "array" for n, s in fields_of(config) if n == name)
            for value in bad_values(schema):
                if value is None and nullable:
                    continue
                given = [value] if is_list and schema.get("type") != "array" else value
                with pytest.raises(ValidationError, match=name):
                    config(**{**required, name: given})
                tried += 1

    assert tried > 100
