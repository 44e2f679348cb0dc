"""One precedence under every way to start: the environment wins over ``.env``.

Dagster's commands copy the ``.env`` of the folder they are started in over their environment, and
have no switch for that. What the process was started with is still known to the system.
"""

import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from dotenv import dotenv_values

from embed_pipeline.paths import ENV_FILE, project_dir

GUARD: Final = "EMBED_PIPELINE_ENVIRONMENT_FIRST"
"""Tells the processes below that the environment is as it was given."""
DAGSTER_DEV: Final = "DAGSTER_IS_DEV_CLI"


def restore_environment() -> None:
    """Restore variables that this folder's ``.env`` has overridden."""
    given = _environment_at_start()
    for name, value in _values(Path.cwd() / ENV_FILE):
        if given.get(name, "") not in ("", value) and os.environ.get(name) == value:
            os.environ[name] = given[name]
    os.environ[GUARD] = "true"


def only_in_file() -> dict[str, str]:
    """The variables that are set in ``.env`` and not in the environment."""
    return {
        name: value for name, value in _values(project_dir() / ENV_FILE) if not os.environ.get(name)
    }


def precedence_warnings(env_file: Path, known: Iterable[str]) -> Iterator[str]:
    """Settings with two different values; names only, a value may be a secret."""
    in_file = dict(_values(env_file))
    for name in sorted(in_file.keys() & set(known)):
        if os.environ.get(name) and os.environ[name] != in_file[name]:
            yield (
                f"{name} is set in the environment and, to another value, in {env_file.name}: the "
                "environment wins. Remove one of the two; after a change of the file, restart."
            )
    if in_file and os.environ.get(DAGSTER_DEV) and not os.environ.get(GUARD):
        yield (
            f"Dagster lets {env_file.name} win over the environment here: the dagster.yaml of its "
            "DAGSTER_HOME lacks the entry 'secrets' of this project's dagster.yaml. Copy it."
        )


def _values(env_file: Path) -> list[tuple[str, str]]:
    if not env_file.is_file():
        return []
    return [(name, value) for name, value in dotenv_values(env_file).items() if value]


def _environment_at_start() -> dict[str, str]:
    # Only Dagster's processes ask; every command reads settings.
    import psutil

    try:
        return psutil.Process().environ()
    except (psutil.Error, OSError):
        return {}
