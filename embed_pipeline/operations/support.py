"""One archive for a bug report: everything that helps, nothing that is anybody's business.

No text, no name of an entity and no secret gets in: what is read is chosen so, and all of it goes
through the redactor. Each part is had by itself, so that a server that is down, or a wrong setting,
takes only its own part away.
"""

import io
import json
import os
import platform
import re
import zipfile
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from embed_pipeline.domain.errors import ConfigurationError, EmbedPipelineError
from embed_pipeline.domain.figures import queue_figures
from embed_pipeline.domain.job import JobFilter, JobStatus
from embed_pipeline.domain.redact import printable
from embed_pipeline.operations import doctor, wiring
from embed_pipeline.operations.findings import Finding, Mark, examine_settings
from embed_pipeline.operations.following import live_settings
from embed_pipeline.paths import dagster_home, neo4j_home
from embed_pipeline.settings import Settings
from embed_pipeline.settings.embeddings import load_embeddings
from embed_pipeline.settings.secrets import is_secret, without_secrets
from embed_pipeline.settings.types import written
from embed_pipeline.store import server_info
from embed_pipeline.store.connection import Driver, connected

TAIL: Final = 200_000
"""Bytes of a log, from its end."""
SAMPLE: Final = 1_000
"""Failed jobs whose errors are counted by kind."""
ACTIONS: Final = 50
_KIND: Final = re.compile(r"^\w+(?:Error|Exception|Timeout)\b")
README: Final = """\
Made by 'embed-pipeline support' for a bug report. It holds settings (secrets only as set or unset),
versions, what 'embed-pipeline doctor' says, figures of the queue, kinds of errors, what operators
did lately, and the ends of the logs. It should hold no secret, no text and no name of an entity:
please look through it before you send it.
"""

Part = Callable[[Driver, Settings], Awaitable[Any]]


async def write_archive(file: Path) -> list[str]:
    """Write the archive, readable by this user only; returns its content list.

    Raises:
        ConfigurationError: the file exists, or cannot be made.
    """
    content = io.BytesIO()
    names: list[str] = []
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        async for name, text in parts():
            archive.writestr(name, without_secrets(printable(text)))
            names.append(name)
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise ConfigurationError(
            f"cannot write {file}: {error.strerror}; choose another name with --out"
        ) from error
    with os.fdopen(descriptor, "wb") as out:
        out.write(content.getvalue())
    return names


async def parts() -> AsyncIterator[tuple[str, str]]:
    """Every file of the archive with its text."""
    yield "README.txt", README
    yield "versions.json", _json(_versions())
    yield "packages.txt", "\n".join(_packages())
    try:
        embeddings = load_embeddings()
    except EmbedPipelineError as error:
        embeddings = ()
        yield "settings.txt", f"cannot be used:\n{error}"
    for settings in embeddings:
        folder = f"{settings.queue}/" if len(embeddings) > 1 else ""
        yield f"{folder}settings.txt", "\n".join(_values(settings))
        yield f"{folder}doctor.txt", await _doctor(settings)
        async for name, text in _of_database(settings):
            yield f"{folder}{name}", text
    for path in (dagster_home() / "dagster.log", *sorted((neo4j_home() / "logs").glob("*.log"))):
        if path.is_file():
            yield f"logs/{path.name}", _tail(path)


def _values(settings: Settings) -> Iterator[str]:
    for name, field in Settings.model_fields.items():
        value = getattr(settings, name)
        shown = "not set" if value is None else "set" if is_secret(field) else written(value)
        # No "=": the redactor would take what follows a name like that for a secret.
        yield f"{_variable(field.validation_alias, name)} {shown}"


def _variable(alias: Any, name: str) -> str:
    choices = getattr(alias, "choices", None)
    return str(choices[0]) if choices else str(alias or name)


def _versions() -> dict[str, str]:
    return {
        "made": datetime.now(UTC).isoformat(timespec="seconds"),
        "embed-pipeline": metadata.version("embed-pipeline"),
        "python": platform.python_version(),
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count()),
    }


def _packages() -> list[str]:
    # Not pip's own list: it shows where a package came from, and an address may hold a password.
    found = {f"{d.metadata['Name']}=={d.version}" for d in metadata.distributions()}
    return sorted(found, key=str.casefold)


async def _doctor(settings: Settings) -> str:
    findings = examine_settings(settings)
    try:
        async for finding in doctor.examine(settings, ask_provider=False):
            findings.append(finding)
    except Exception as error:
        # A broken part is a part of the report.
        findings.append(Finding("Doctor", Mark.BAD, _said(error)))
    return "\n".join(f"{f.mark} {f.subject}: {f.detail} {f.remedy}".rstrip() for f in findings)


async def _of_database(settings: Settings) -> AsyncIterator[tuple[str, str]]:
    wanted: dict[str, Part] = {
        "neo4j.json": _server,
        "schema.json": _schema,
        "queue.json": _queue,
        "errors.json": _errors,
        "audit.json": _actions,
    }
    try:
        async with connected(wiring.connection(settings)) as driver:
            settings = await live_settings(driver, settings)
            for name, read in wanted.items():
                yield name, _json(await _had(read, driver, settings))
    except EmbedPipelineError as error:
        yield "neo4j.json", _json({"cannot be reached": str(error)})


async def _had(read: Part, driver: Driver, settings: Settings) -> Any:
    try:
        return await read(driver, settings)
    except Exception as error:
        # The other parts may still be had.
        return {"cannot be had": _said(error)}


async def _server(driver: Driver, settings: Settings) -> dict[str, Any]:
    info = await server_info.read(driver, database=settings.neo4j_database)
    return {"version": info.version, "edition": info.edition, "apoc": info.apoc}


async def _schema(driver: Driver, settings: Settings) -> dict[str, Any]:
    state = await wiring.inspect_schema(driver, settings)
    index = state.vector_index
    return {
        "version": state.version,
        "problem": state.problem,
        "missing": state.missing,
        "not online": state.not_online,
        "vector index": index and {"dimensions": index.dimensions, "state": index.state},
    }


async def _queue(driver: Driver, settings: Settings) -> dict[str, Any]:
    queue = wiring.queue_on(driver, settings)
    metrics = await queue.metrics.read()
    coverage = await queue.reconciler(settings.model).last()
    return {
        "figures": queue_figures(metrics),
        "paused": metrics.state.is_paused,
        "breaker": metrics.state.breaker.status,
        "breaker since": metrics.state.breaker.since,
        "failed": metrics.categories,
        "coverage": coverage and {"at": coverage.at, **coverage.summary},
    }


async def _errors(driver: Driver, settings: Settings) -> list[dict[str, Any]]:
    """Counts of errors by category and type, without messages."""
    which = JobFilter(statuses=frozenset({JobStatus.FAILED}))
    jobs = await wiring.queue_on(driver, settings).admin.find_jobs(which, limit=SAMPLE)
    kinds = Counter((job.error_category, _kind(job.error), job.attempts) for job in jobs)
    return [
        {"category": category, "kind": kind, "attempts": attempts, "jobs": count}
        for (category, kind, attempts), count in kinds.most_common()
    ]


def _kind(error: str | None) -> str:
    found = _KIND.match(error or "")
    return found[0] if found else "(another)"


async def _actions(driver: Driver, settings: Settings) -> list[dict[str, Any]]:
    """What operators did, without filters, which may name entities."""
    entries = await wiring.queue_on(driver, settings).audit.recent(limit=ACTIONS)
    return [
        {
            "at": entry.at,
            "action": entry.action,
            "count": entry.count,
            "run": entry.run_id,
            "finished": entry.is_complete,
        }
        for entry in entries
    ]


def _tail(path: Path) -> str:
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - TAIL))
        return file.read().decode("utf-8", errors="replace")


def _said(error: BaseException) -> str:
    # The words of other libraries may quote anything.
    return str(error) if isinstance(error, EmbedPipelineError) else type(error).__name__


def _json(value: Any) -> str:
    return json.dumps(_plain(value), indent=2, default=str, ensure_ascii=False)


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(item) for item in value]
    return value
