"""Finding what an ``embed-pipeline dev`` started that was killed before it could stop it."""

import os
from pathlib import Path
from typing import Final

from embed_pipeline.devserver.process_group import stop_group

HOME_MARK: Final = "EMBED_PIPELINE_DEV_HOME"
"""In the environment of everything that ``dev`` starts for Dagster; children inherit it.

Notes on disk can be lost, pids are used again, and the leader of a process group may be dead while
the rest of it goes on (seen: the daemon and the web server survive ``dg``). What a process was
started with stays true for as long as it lives.
"""


def mark_of(home: Path) -> dict[str, str]:
    """The variable that marks processes that work on this Dagster home."""
    return {HOME_MARK: str(home.resolve())}


def stop_leftovers(home: Path) -> bool:
    """End the Dagster of a session that died before it could; say whether there was one."""
    groups = _groups_of(home)
    for group in groups:
        stop_group(group)
    return bool(groups)


def _groups_of(home: Path) -> set[int]:
    """The process groups with a living process that ``dev`` started for this home."""
    import psutil

    wanted, groups = str(home.resolve()), set()
    for process in psutil.process_iter():
        if marked_home(process.pid) == wanted:
            try:
                groups.add(os.getpgid(process.pid))
            except ProcessLookupError:
                continue
    return groups - {os.getpgrp()}


def marked_home(pid: int) -> str | None:
    """The Dagster home that a process of this user was started for by ``dev``, if it was."""
    import psutil

    try:
        process = psutil.Process(pid)
        if process.uids().real != os.getuid() or process.status() == psutil.STATUS_ZOMBIE:
            return None
        return process.environ().get(HOME_MARK)
    except (psutil.Error, OSError):
        return None
