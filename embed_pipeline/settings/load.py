"""Read all settings and report every problem at once.

Each problem names the variable, its value (never a secret) and what is allowed. The command
line and the Dagster code location both start here, so they refuse with the same words.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from dotenv import dotenv_values
from pydantic import SecretStr, ValidationError

from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.models import DEFAULT_MODELS, MOCK_PREFIX, MODELS, Provider
from embed_pipeline.domain.neo4j_uri import holds_credentials
from embed_pipeline.paths import ENV_FILE, project_dir
from embed_pipeline.settings.addresses import is_plaintext_bolt
from embed_pipeline.settings.operations import Settings
from embed_pipeline.settings.precedence import precedence_warnings
from embed_pipeline.settings.secrets import is_secret, variables, without_secrets
from embed_pipeline.settings.types import written

PREFIXES: Final = ("EMBED_", "EMBEDDING_")
COMMAND_LINE_PREFIX: Final = "EMBED_PIPELINE_"
"""Variables of the command line: where data lives, which port the bundled server takes."""
RETENTION_EXAMPLE: Final = 14
LONGEST_SHOWN: Final = 200  # characters of a wrong value
MINUTE: Final = timedelta(minutes=1)
UNVERIFIED: Final = (
    "it encrypts, but does not verify whose certificate it is, so that anything that answers in "
    "the server's place can read and change everything, the password too"
)
"""What ``+ssc`` does not do."""


@dataclass(frozen=True, slots=True)
class Problem:
    """A setting that cannot be used."""

    variables: frozenset[str]
    message: str


def load_settings(env_file: Path | None = None, **given: Any) -> Settings:
    """Read the settings from the environment and ``.env``; the environment wins, ``given`` first.

    Raises:
        ConfigurationError: lists every problem, one per line.
    """
    return checked(env_file or project_dir() / ENV_FILE, given)


def changed(settings: Settings, given: Mapping[str, Any]) -> Settings:
    """These settings with other values; explicit values are kept.

    Raises:
        ConfigurationError: lists every problem, one per line.
    """
    names = {name: str(field.validation_alias) for name, field in Settings.model_fields.items()}
    said = {names[name]: getattr(settings, name) for name in settings.model_fields_set}
    return checked(None, {**said, **given})


def checked(env_file: Path | None, given: Mapping[str, Any]) -> Settings:
    """The settings that these values and the environment mean.

    Raises:
        ConfigurationError: lists every problem, one per line.
    """
    settings, problems = examined(env_file, given)
    if problems:
        raise ConfigurationError(_listing(problems, env_file))
    return settings


def examined(env_file: Path | None, given: Mapping[str, Any]) -> tuple[Settings, list[Problem]]:
    """The settings and the problems in them, with harmless defaults in place of wrong values."""
    try:
        settings = Settings(_env_file=env_file, **given)  # pyright: ignore[reportCallIssue]
        problems = []
    except ValidationError as error:
        problems = [_problem(e["loc"][0], e["input"], e["type"]) for e in error.errors()]
        # The rest is checked with harmless values in place of the wrong ones.
        settings = Settings(_env_file=env_file, **{**given, **_stand_ins(problems)})  # pyright: ignore
    wrong = frozenset[str]().union(*(p.variables for p in problems))
    problems += [p for p in _contradictions(settings) if not p.variables & wrong]
    return settings, problems


def warnings(settings: Settings, env_file: Path | None = None) -> list[str]:
    """What is allowed and probably not intended."""
    env_file = env_file or project_dir() / ENV_FILE
    return [
        *_warnings(settings),
        *_unknown_variables(env_file),
        *precedence_warnings(env_file, variables()),
    ]


def _problem(variable: int | str, value: object, kind: str) -> Problem:
    name = str(variable)
    field = variables()[name]
    extra: dict[str, Any] = field.json_schema_extra  # pyright: ignore[reportAssignmentType]
    allowed = str(extra["allowed"])
    if kind == "missing":
        return Problem(
            frozenset({name}),
            f"{name} is not set; it must be {allowed} ({RETENTION_EXAMPLE} is a good start).",
        )
    if is_secret(field) or isinstance(value, SecretStr):
        return Problem(frozenset({name}), f"{name} (value not shown) must be {allowed}.")
    if holds_credentials(str(value)):
        service = name.partition("_")[0]
        return Problem(
            frozenset({name}),
            f"{name} (value not shown) holds a user or password; it must be {allowed}. Secrets "
            f"belong into the other {service}_… variables.",
        )
    hint = _did_you_mean_seconds(name, written(value))
    return Problem(frozenset({name}), f"{name} is {_shown(value)}; it must be {allowed}.{hint}")


def _shown(value: object) -> str:
    # A key may have got into the wrong variable.
    text = without_secrets(written(value))
    return repr(text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}…")


def _did_you_mean_seconds(variable: str, value: str) -> str:
    is_time = variable.endswith(("_MS", "_INTERVAL"))
    if not is_time or not value.isdecimal() or not 0 < int(value) < 1_000:
        return ""
    return f" Did you mean {int(value) * 1_000} ({value} seconds)?"


def _stand_ins(problems: list[Problem]) -> dict[str, Any]:
    fields = variables()
    return {
        name: RETENTION_EXAMPLE if fields[name].is_required() else fields[name].default
        for problem in problems
        for name in problem.variables
    }


def _contradictions(settings: Settings) -> Iterator[Problem]:
    """Values that are valid alone but contradict each other."""
    if settings.heartbeat > settings.lease / 2:
        preset = f" (preset {settings.preset})" if settings.preset else ""
        heartbeat, lease = written(settings.heartbeat), written(settings.lease)
        yield Problem(
            frozenset({"EMBED_JOB_HEARTBEAT_INTERVAL_MS", "EMBED_JOB_LOCK_DURATION_MS"}),
            f"EMBED_JOB_HEARTBEAT_INTERVAL_MS is {heartbeat}{preset}; it must be at most half of "
            f"EMBED_JOB_LOCK_DURATION_MS, which is {lease}, or one missed beat loses the lease.",
        )
    if settings.tokens_per_minute is not None and settings.rate_limit_interval < MINUTE:
        yield Problem(
            frozenset({"EMBEDDING_TOKENS_PER_MINUTE", "EMBEDDING_RATE_LIMIT_INTERVAL"}),
            f"EMBEDDING_RATE_LIMIT_INTERVAL is {written(settings.rate_limit_interval)}; with "
            f"EMBEDDING_TOKENS_PER_MINUTE it must be at least {written(MINUTE)}, because both are "
            "counted in one window: set 60000 and the requests of a minute.",
        )
    attempts, retries = settings.chosen_max_attempts, settings.chosen_max_retries
    if attempts and retries and attempts != retries:
        yield Problem(
            frozenset({"EMBED_JOB_MAX_ATTEMPTS", "EMBED_JOB_MAX_RETRIES"}),
            f"EMBED_JOB_MAX_ATTEMPTS is {attempts} and EMBED_JOB_MAX_RETRIES is {retries}; they "
            "are two names for one setting: set one of them.",
        )
    if settings.own_neo4j_uri and not settings.own_neo4j_password:
        yield Problem(
            frozenset({"NEO4J_PASSWORD", "NEO4J_URI"}),
            "NEO4J_PASSWORD is not set, but NEO4J_URI names a server of your own; set both, or "
            "neither to use the bundled server.",
        )
    uri = settings.own_neo4j_uri
    if uri and settings.allow_plaintext_bolt == "false" and is_plaintext_bolt(uri):
        scheme = uri.partition("://")[0]
        yield Problem(
            frozenset({"NEO4J_URI", "EMBED_ALLOW_PLAINTEXT_BOLT"}),
            f"NEO4J_URI is {_shown(uri)}, another machine without TLS: password and texts could "
            f"be read on the way; use {scheme}+s:// (or {scheme}+ssc:// for a certificate of your "
            f"own; {UNVERIFIED}), or set EMBED_ALLOW_PLAINTEXT_BOLT=true if the network is yours "
            "alone.",
        )
    try:
        _ = settings.entity_shape
    except ConfigurationError as error:
        names = frozenset(name for name in variables() if name.startswith("EMBED_ENTITY_"))
        yield Problem(names, f"EMBED_ENTITY_… contradict each other: {error}.")
    yield from _model_contradictions(settings)


def _model_contradictions(settings: Settings) -> Iterator[Problem]:
    if settings.embedding_provider == "openai" and not settings.openai_api_key:
        yield Problem(
            frozenset({"EMBEDDING_PROVIDER", "OPENAI_API_KEY"}),
            "OPENAI_API_KEY is not set, but EMBEDDING_PROVIDER is 'openai'; set a key (any text "
            "for a server that asks for none), or choose local, local-fast or mock.",
        )
    if settings.provider is Provider.OWN and not (
        settings.chosen_model and settings.chosen_dimensions
    ):
        yield Problem(
            frozenset({"EMBEDDING_PROVIDER", "EMBEDDING_MODEL", "EMBEDDING_DIMENSIONS"}),
            f"EMBEDDING_PROVIDER is {settings.embedding_provider!r}, a class of yours: set "
            "EMBEDDING_MODEL and EMBEDDING_DIMENSIONS to what it makes.",
        )
    if settings.has_money_budget and settings.price.usd_per_million is None:
        yield Problem(
            frozenset({"EMBED_BUDGET_USD_PER_DAY", "EMBED_BUDGET_USD_PER_MONTH"}),
            f"EMBED_BUDGET_USD_PER_… limits dollars, but the price of {settings.model} is not "
            "known; set EMBEDDING_PRICE_USD_PER_MILLION, or EMBED_BUDGET_TOKENS_PER_… instead.",
        )
    if problem := settings.type_problem:
        yield Problem(frozenset({"EMBEDDING_TYPE_FIELD"}), problem)
    known = MODELS.get(settings.model.removeprefix(MOCK_PREFIX))
    here = DEFAULT_MODELS.get(settings.provider) if settings.provider.runs_here else None
    if here and settings.model != here:
        yield Problem(
            frozenset({"EMBEDDING_MODEL", "EMBEDDING_PROVIDER"}),
            f"EMBEDDING_MODEL is {settings.model!r}, but EMBEDDING_PROVIDER is "
            f"{settings.provider.value!r}, which has {here}; leave EMBEDDING_MODEL empty to use "
            "that.",
        )
    elif known and known.provider.runs_here and settings.provider is Provider.OPENAI:
        yield Problem(
            frozenset({"EMBEDDING_MODEL", "EMBEDDING_PROVIDER"}),
            f"EMBEDDING_MODEL is {settings.model!r}, a local model, but the provider is 'openai'; "
            f"set EMBEDDING_PROVIDER to {known.provider.value}.",
        )
    elif known and not known.can_make(settings.dimensions):
        yield Problem(
            frozenset({"EMBEDDING_MODEL", "EMBEDDING_DIMENSIONS"}),
            f"EMBEDDING_DIMENSIONS is {settings.dimensions}, but {known.name} makes vectors of "
            f"{known.lengths}.",
        )


def _warnings(settings: Settings) -> Iterator[str]:
    if settings.provider is Provider.MOCK:
        why = "EMBEDDING_PROVIDER is 'mock'"
        if settings.embedding_provider == "auto":
            why = "OPENAI_API_KEY is not set"
        yield (
            f"{why}: vectors are MOCK vectors of model {settings.model!r}. They have no meaning; "
            "search will find nothing useful."
        )
        if settings.openai_base_url:
            yield "OPENAI_BASE_URL is set but not used: set OPENAI_API_KEY too (any text will do)."
    elif settings.provider.runs_here and settings.openai_api_key:
        yield (
            f"OPENAI_API_KEY is set but not used: EMBEDDING_PROVIDER is "
            f"{settings.provider.value!r}. To use it, set EMBEDDING_PROVIDER to openai."
        )
    if (settings.own_neo4j_uri or "").partition("://")[0].endswith("+ssc"):
        yield f"NEO4J_URI has +ssc: {UNVERIFIED}. +s verifies the certificate."
    if not settings.recovery_interval:
        yield (
            "EMBED_JOB_RECOVERY_INTERVAL is 0: recovery is OFF at startup, periodically, in drains "
            "and after failed Dagster runs. Jobs of dead workers stay locked until you run "
            "`embed-pipeline recover`."
        )
    elif settings.recovery_interval > settings.lease:
        worst = settings.recovery_interval + settings.lease
        yield (
            f"EMBED_JOB_RECOVERY_INTERVAL is longer than a lease: a dead worker's jobs may "
            f"wait {worst.total_seconds():.0f} seconds."
        )
    if settings.mode == "batch" and settings.no_batches:
        yield f"EMBEDDING_MODE is batch, but {settings.no_batches}."
    for field_name, field in Settings.model_fields.items():
        name, value = str(field.validation_alias), written(getattr(settings, field_name))
        if hint := _did_you_mean_seconds(name, value):
            yield f"{name} is {value} milliseconds.{hint}"


def _unknown_variables(env_file: Path) -> Iterator[str]:
    known = variables()
    given = {*os.environ, *(dotenv_values(env_file) if env_file.is_file() else ())}
    for name in sorted(given - known.keys()):
        if name.startswith(PREFIXES) and not name.startswith(COMMAND_LINE_PREFIX):
            import difflib  # hardly ever needed

            close = difflib.get_close_matches(name, known, n=1)
            hint = f" Did you mean {close[0]}?" if close else ""
            yield f"{name} is not a setting and is ignored.{hint}"


def _listing(problems: list[Problem], env_file: Path | None) -> str:
    count = "One setting is" if len(problems) == 1 else f"{len(problems)} settings are"
    lines = "\n".join(f"  - {p.message}" for p in problems)
    where = f"the environment or in {env_file.name}" if env_file else "the call or the environment"
    return f"{count} wrong:\n{lines}\nSet them in {where}."
