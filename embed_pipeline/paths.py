"""Where the project keeps things on this machine."""

import os
from pathlib import Path
from typing import Final

STATE_FOLDER: Final = ".embed_pipeline"
"""Everything that is written while the project runs; one folder, ignored by git."""
ENV_FILE: Final = ".env"


def project_dir() -> Path:
    """The nearest folder upwards that holds ``workspace.yaml``, else the current one.

    So commands and notebooks started in a subfolder use the same settings and the same data.
    """
    here = Path.cwd()
    return next((p for p in (here, *here.parents) if (p / "workspace.yaml").is_file()), here)


def state_dir() -> Path:
    """The folder of local data; ``EMBED_PIPELINE_HOME`` moves it."""
    override = os.environ.get("EMBED_PIPELINE_HOME")
    return Path(override).expanduser().absolute() if override else project_dir() / STATE_FOLDER


def dagster_home() -> Path:
    """Where ``make dev`` lets Dagster keep its history."""
    return state_dir() / "dagster"


def neo4j_home() -> Path:
    """The home of the bundled Neo4j server."""
    return state_dir() / "neo4j"


def local_connection_file() -> Path:
    """Address and password of the bundled server, written when it first starts."""
    return neo4j_home() / "connection.json"
