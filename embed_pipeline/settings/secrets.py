"""The secrets that this process knows: the one place that tells the redactor."""

import os
from collections.abc import Iterator
from contextlib import suppress

from dotenv import dotenv_values
from pydantic.fields import FieldInfo

from embed_pipeline.paths import ENV_FILE, bundled_server, neo4j_home, project_dir
from embed_pipeline.settings.operations import Settings


def variables() -> dict[str, FieldInfo]:
    """Every setting by the name of its variable."""
    return {str(field.validation_alias): field for field in Settings.model_fields.values()}


def is_secret(field: FieldInfo) -> bool:
    """Say whether the value of this setting must not be shown."""
    return "SecretStr" in str(field.annotation)


def known_secrets() -> tuple[str, ...]:
    """Every value that must not be shown: of the environment, of ``.env``, of the bundled server.

    Not only those of our settings: the environment of a process also holds the secrets of others.
    Takes a few milliseconds: for errors, and once for all lines of a log.
    """
    # Its patterns take longer to compile than all settings to read, and only errors need them.
    from embed_pipeline.domain.redact import secrets_of

    file = project_dir() / ENV_FILE
    in_file = dotenv_values(file) if file.is_file() else {}
    # A name may come twice, with two values: both are secrets.
    given = [*os.environ.items(), *((name, value or "") for name, value in in_file.items())]
    given += [("NEO4J_PASSWORD", password) for password in _bundled_passwords()]
    harmless = {name for name, field in variables().items() if not is_secret(field)}
    return secrets_of((name, value) for name, value in given if name not in harmless)


def _bundled_passwords() -> Iterator[str]:
    """The passwords of the bundled server started last, and of one being created."""
    yield bundled_server().get("password", "")
    with suppress(OSError):
        yield (neo4j_home() / "password").read_text(encoding="utf-8").strip()


def without_secrets(text: str) -> str:
    """Mask every secret that this process knows, and what looks like one."""
    from embed_pipeline.domain.redact import redact

    return redact(text, known_secrets())
