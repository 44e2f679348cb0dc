"""Several embeddings in one project: ``embeddings.yaml`` describes each in a few lines.

What an entry does not say is what the variables say. Without the file the variables describe the
one embedding that there is. Problems are named with file, line and field, all at once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from dotenv import dotenv_values

from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.models import MOCK_PREFIX
from embed_pipeline.paths import ENV_FILE, project_dir
from embed_pipeline.settings.embedding_fields import FIELDS, VARIABLES
from embed_pipeline.settings.entities import pieces_settings, relations_settings
from embed_pipeline.settings.load import (
    RETENTION_EXAMPLE,
    Problem,
    checked,
    examined,
    load_settings,
    warnings,
)
from embed_pipeline.settings.profiles import type_settings

if TYPE_CHECKING:
    from yaml import MappingNode, Node

    from embed_pipeline.domain.identity import Embedding
    from embed_pipeline.settings.operations import Settings

FILE: Final = "embeddings.yaml"
VARIABLE: Final = "EMBED_EMBEDDINGS_PATH"
TOP: Final = "embeddings"
DEPS: Final = "deps"
"""The assets of a project that write the nodes; only a component has some."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the file: values, and the line of each field."""

    line: int
    values: Mapping[str, str]
    lines: Mapping[str, int]

    def line_of(self, variables: frozenset[str]) -> int:
        """The line of the first of these fields that is there."""
        named = [self.lines[FIELDS[v]] for v in variables if FIELDS.get(v) in self.lines]
        return min(named, default=self.line)


def load_embeddings(env_file: Path | None = None) -> tuple[Settings, ...]:
    """The settings of each embedding: those of the file, or the one that the variables describe.

    Raises:
        ConfigurationError: lists every problem, one per line.
    """
    path = embeddings_file(env_file)
    if path is None:
        return (load_settings(env_file),)
    return read_embeddings(path, env_file)


def log_all_warnings(embeddings: Sequence[Settings]) -> None:
    """Log the warnings of all embeddings once, for processes without a terminal."""
    said = dict.fromkeys(text for settings in embeddings for text in warnings(settings))
    for text in said:
        logging.getLogger("embed_pipeline.settings").warning(text)


def chosen_embedding(name: str | None) -> Settings:
    """The settings of the embedding of this name; without a name of the only one there is.

    Raises:
        ConfigurationError: there is none of this name, or several and none is named.
    """
    found = {settings.queue: settings for settings in load_embeddings()}
    names = ", ".join(found)
    if name is None and len(found) > 1:
        raise ConfigurationError(
            f"this project has {len(found)} embeddings: {names}. Say which: --embedding on the "
            "command line, in a program settings=chosen_embedding(name), in history queue=name"
        )
    if name is not None and name not in found:
        raise ConfigurationError(
            f"--embedding: there is no embedding {name!r}; this project has {names}"
        )
    return found[name] if name else next(iter(found.values()))


def embeddings_file(env_file: Path | None = None) -> Path | None:
    """The file, if there is one.

    Raises:
        ConfigurationError: the variable names one that is not there.
    """
    said = env_file or project_dir() / ENV_FILE
    own = os.environ.get(VARIABLE) or dotenv_values(said).get(VARIABLE)
    path = project_dir() / Path(own or FILE).expanduser()
    if path.is_file():
        return path
    if own:
        raise ConfigurationError(f"{VARIABLE} is {own!r}; there is no such file")
    return None


def settings_for(embedding: Embedding, *, queue: str, database: str) -> Settings:
    """The settings of a program that brings its own driver and describes its embedding.

    Everything else (key of the provider, limits, leases) comes from the environment; no ``.env``
    is read, it may be that of another program.

    Raises:
        ConfigurationError: lists every problem, one per line.
    """
    shape, model = embedding.shape, embedding.model
    named = {field.name for field in fields(shape)} - {"index", "relations", "pieces", "sent_as"}
    related = relations_settings(shape.relations).items()
    given = {
        **{f"EMBED_ENTITY_{name.upper()}": getattr(shape, name) for name in named},
        **{f"EMBED_ENTITY_RELATIONS_{name.upper()}": value for name, value in related},
        **pieces_settings(shape.pieces),
        "EMBEDDING_DOCUMENT_PREFIX": shape.prefix,
        **type_settings(shape.sent_as),
        "EMBED_VECTOR_INDEX": shape.index,
        "EMBEDDING_PROVIDER": str(embedding.provider),
        "EMBEDDING_MODEL": model.removeprefix(MOCK_PREFIX)
        if embedding.provider == "mock"
        else model,
        "EMBEDDING_DIMENSIONS": embedding.dimensions,
        "EMBED_QUEUE": queue,
        "NEO4J_DATABASE": database,
        **dict.fromkeys(("NEO4J_URI", "NEO4J_PASSWORD")),  # The driver is open already.
    }
    if "EMBED_JOB_RETENTION_DAYS" not in os.environ:
        given["EMBED_JOB_RETENTION_DAYS"] = RETENTION_EXAMPLE
    return checked(None, given)


def read_embeddings(
    path: Path,
    env_file: Path | None = None,
    *,
    below: Sequence[str] = (),
    values: Sequence[Mapping[str, str]] | None = None,
    otherwise: Mapping[str, Any] = MappingProxyType({}),
) -> tuple[Settings, ...]:
    """The settings of each embedding of a file.

    ``below`` are the keys under which the list stands, where the file says more; ``values`` stand
    for those of the file, where somebody else has read them already. ``otherwise`` is what holds
    for variables that nobody has set.

    Raises:
        ConfigurationError: lists every problem with its line.
    """
    problems: list[tuple[int, str]] = []
    entries = _entries(path, below, problems)
    if values is not None:
        entries = [
            replace(entry, values=said) for entry, said in zip(entries, values, strict=False)
        ]
    found: list[tuple[Entry, Settings]] = []
    for entry in entries:
        given = {name: value for name, value in otherwise.items() if name not in os.environ}
        given |= {VARIABLES[name]: value for name, value in entry.values.items()}
        settings, wrong = examined(env_file or project_dir() / ENV_FILE, given)
        problems += [(entry.line_of(p.variables), _in_words(p)) for p in wrong]
        found.append((entry, settings))
    if not problems:
        problems += _clashes(found)
    if problems:
        count = "One thing is" if len(problems) == 1 else f"{len(problems)} things are"
        lines = "\n".join(f"  - {path.name}:{line}: {said}" for line, said in sorted(problems))
        raise ConfigurationError(f"{count} wrong in {path.name}:\n{lines}")
    return tuple(settings for _, settings in found)


def _entries(path: Path, below: Sequence[str], problems: list[tuple[int, str]]) -> list[Entry]:
    import yaml  # only where there is a file

    try:
        root = yaml.compose(path.read_text(), Loader=yaml.SafeLoader)
    except (yaml.YAMLError, OSError, UnicodeDecodeError) as error:
        mark = getattr(error, "problem_mark", None)
        said = getattr(error, "problem", None) or type(error).__name__
        problems.append((mark.line + 1 if mark else 1, f"cannot be read: {said}"))
        return []
    for key in (*below, TOP):
        root = _value_of(root, key)
    if not isinstance(root, yaml.SequenceNode) or not root.value:
        problems.append((1, f"must be '{TOP}:' and a list of embeddings, each with a name"))
        return []
    return [entry for node in root.value for entry in [_entry(node, problems)] if entry is not None]


def _value_of(node: Node | None, key: str) -> Node | None:
    import yaml

    if not isinstance(node, yaml.MappingNode):
        return None
    return next((value for name, value in node.value if name.value == key), None)


def _entry(node: Node, problems: list[tuple[int, str]]) -> Entry | None:
    import yaml

    line = node.start_mark.line + 1
    if not isinstance(node, yaml.MappingNode):
        problems.append((line, "must be the fields of an embedding: name, label, key, text, …"))
        return None
    values: dict[str, str] = {}
    lines: dict[str, int] = {}
    for name, at, said in _pairs(node):
        if name == DEPS:
            continue  # Dagster's business.
        if name not in VARIABLES:
            allowed = ", ".join(VARIABLES)
            problems.append((at, f"{name} is no field of an embedding; allowed are {allowed}"))
        elif said is None:
            problems.append((at, f"{name} must be one value"))
        elif name in values:
            problems.append((at, f"{name} is said twice; the first time in line {lines[name]}"))
        else:
            values[name], lines[name] = said, at
    if "name" not in values:
        problems.append((line, "name is missing; it is the name of the queue, and of the assets"))
        return None
    return Entry(line, values, lines)


def _pairs(node: MappingNode) -> Iterator[tuple[str, int, str | None]]:
    """Name, line and value of each field; no value if it is not a scalar."""
    import yaml

    for key, value in node.value:
        is_single = isinstance(value, yaml.ScalarNode)
        yield str(key.value), key.start_mark.line + 1, value.value if is_single else None


def _in_words(problem: Problem) -> str:
    """The message with the names of fields instead of variables."""
    said = problem.message
    for variable in sorted(problem.variables, key=len, reverse=True):
        if field := FIELDS.get(variable):
            said = said.replace(variable, field)
    return said


def _clashes(found: Sequence[tuple[Entry, Settings]]) -> Iterator[tuple[int, str]]:
    """Embeddings that would interfere with each other."""
    names: dict[str, int] = {}
    vectors: dict[tuple[str, str], str] = {}
    for entry, settings in found:
        line, name = entry.lines["name"], settings.queue
        if name in names:
            yield line, f"name is {name!r}, as in line {names[name]}; each needs its own"
        names.setdefault(name, line)
        shape = settings.entity_shape
        other = vectors.setdefault((shape.label, shape.vector), name)
        if other != name:
            said = f"{name} would write to {shape.vector} of {shape.label}, as {other} does; "
            yield entry.lines.get("vector", line), f"{said}set vector to a property of its own"
