"""Finds what is read: the Dagster instance, and the exported days that belong to it."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import dagster as dg
from dagster._core.instance.ref import InstanceRef

from embed_pipeline.domain.errors import HistoryError
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE, checked_queue_name
from embed_pipeline.history.archive import Archive
from embed_pipeline.paths import ENV_FILE, dagster_home, project_dir
from embed_pipeline.settings import Settings
from embed_pipeline.settings.embeddings import chosen_embedding, load_embeddings
from embed_pipeline.settings.load import RETENTION_EXAMPLE, checked

REQUIRED: Final = "EMBED_JOB_RETENTION_DAYS"
"""No deployment is without it."""
Instance = dg.DagsterInstance | Path | str | None
"""An open instance, a ``DAGSTER_HOME``, or None for the project's own."""


def own_home() -> Path:
    """The ``DAGSTER_HOME`` of this deployment: the variable, else the one of ``make dev``."""
    named = os.environ.get("DAGSTER_HOME")
    return Path(named).expanduser().absolute() if named else dagster_home()


def queue_for(queue: str | None, instance: Instance, address: str | None) -> str:
    """The queue that is meant: the one that is named, or that of this deployment.

    Of other deployments nothing is known; then it is the first queue.
    """
    if queue is not None:
        return checked_queue_name(queue)
    is_ours = address is None and is_own(instance) and _is_project()
    return chosen_embedding(None).queue if is_ours else DEFAULT_QUEUE


def archive_for(instance: Instance, address: str | None, *, queue: str) -> Archive | None:
    """The exported days of an instance; None if their place is not configured.

    The default folder is left out for the instance of another deployment: its days would stand in
    for the other's without a sign.
    """
    if address:
        return Archive.at(address)
    settings = _settings()[0].model_copy(update={"queue": queue})
    if settings.own_history_path or is_own(instance):
        return Archive.at(settings.history_path)
    return None


def _settings() -> tuple[Settings, ...]:
    """The project's settings; outside a project those of the environment alone."""
    if _is_project():
        return load_embeddings()
    return (checked(None, {REQUIRED: RETENTION_EXAMPLE}),)


def _is_project() -> bool:
    return (project_dir() / ENV_FILE).is_file() or REQUIRED in os.environ


def is_own(instance: Instance) -> bool:
    """Say whether this is the instance of this project."""
    match instance:
        case None:
            return True
        case dg.DagsterInstance():
            root = instance.root_directory if instance.is_persistent else None
            return root is not None and _is_same(Path(root), own_home())
        case _:
            return _is_same(Path(instance), own_home())


def has_storage(home: Path) -> bool:
    """Whether Dagster has stored anything there; opening the folder would create it."""
    if not home.is_dir():
        return False
    storage = InstanceRef.from_dir(str(home.absolute())).event_storage_data
    folder = storage.config_dict.get("base_dir") if storage else None
    # Without a folder it is a server's database, or a variable names the folder.
    return not isinstance(folder, str) or (Path(folder) / "index.db").is_file()


@contextmanager
def opened_instance(instance: Instance) -> Iterator[dg.DagsterInstance]:
    """Open an instance, never create one.

    Raises:
        HistoryError: nothing is there.
    """
    if isinstance(instance, dg.DagsterInstance):
        yield instance
        return
    home = Path(instance).expanduser().absolute() if instance else own_home()
    if not has_storage(home):
        raise HistoryError(
            f"{home} holds no history of Dagster; start Dagster there once (make dev), or name "
            "another DAGSTER_HOME: instance=..."
        )
    with dg.DagsterInstance.from_config(str(home)) as opened:
        yield opened


def _is_same(one: Path, other: Path) -> bool:
    return one.expanduser().resolve() == other.resolve()
