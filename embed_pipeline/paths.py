"""Where the project keeps things on this machine, and that they are its user's alone."""

import json
import os
import shlex
import shutil
import stat
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

PROGRAM: Final = "embed-pipeline"
STATE_FOLDER: Final = ".embed_pipeline"
"""Everything that is written while the project runs; one folder, ignored by git."""
ENV_FILE: Final = ".env"
PRIVATE_UMASK: Final = 0o077
"""Folders become 0700 and files 0600: logs and events of Dagster name entities and quote errors."""


def program() -> str:
    """The command to paste for this program, as it was called; its name where PATH has it."""
    typed = sys.argv[0]
    if Path(typed).name != PROGRAM:
        typed = str(Path(sys.executable).parent / PROGRAM)
    elif typed == PROGRAM or _is_on_the_path(Path(typed)):
        return PROGRAM
    here = Path.cwd()
    path = Path(typed)
    return shlex.quote(str(path.relative_to(here)) if path.is_relative_to(here) else typed)


def _is_on_the_path(program: Path) -> bool:
    found = shutil.which(PROGRAM)
    return found is not None and program.exists() and program.samefile(found)


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
    """Dagster's home under ``make dev``."""
    return state_dir() / "dagster"


def neo4j_home() -> Path:
    """The home of the bundled Neo4j server."""
    return state_dir() / "neo4j"


def local_connection_file() -> Path:
    """Address and password of the bundled server, written when it first starts."""
    return neo4j_home() / "connection.json"


def bundled_server() -> dict[str, str]:
    """Address and password of the bundled server; empty where it has never been started."""
    try:
        return json.loads(local_connection_file().read_text())
    except (OSError, ValueError):
        return {}


def make_private(folder: Path) -> None:
    """Create a folder, or close an existing one with all that is in it to other users.

    What belongs to somebody else, or lies on a read-only mount, stays as it is; links are not
    followed.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for path, folders, files in os.walk(folder):
        for name in (".", *folders, *files):
            _close_to_others(Path(path, name))


def _close_to_others(path: Path) -> None:
    with suppress(OSError):
        mode = path.lstat().st_mode
        if not stat.S_ISLNK(mode) and mode & PRIVATE_UMASK:
            path.chmod(stat.S_IMODE(mode) & ~PRIVATE_UMASK)
