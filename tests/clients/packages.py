"""Programs of others that write to Neo4j: installed once, into a cache outside the checkout.

They need other versions of what is locked here (the Neo4j driver 5, for one), so they get an
environment of their own. Where a registry cannot be reached, their tests are skipped.
"""

import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Final

import pytest
from platformdirs import user_cache_path

from tests.support.project import BIN

PYTHON_CLIENTS: Final = (
    "neo4j-graphrag==1.21.0",
    "langchain-neo4j==0.11.0",
    "llama-index-vector-stores-neo4jvector==0.7.0",
)
WITHOUT_ITS_SERVER: Final = "mcp-neo4j-memory==0.4.5"
"""What it writes is one module; its server's dependencies take ten seconds to import."""
MEMENTO: Final = "@gannonh/memento-mcp@0.3.9"
LONGEST_INSTALLATION: Final = 300.0
"""Seconds of one command; a network that swallows everything must not hold the other tests up."""
_REFUSED: Final[dict[str, str]] = {}
"""What could not be installed, and why: it is not tried again for every test."""


def python_with_clients() -> Path:
    """An interpreter that has the clients of Neo4j that are written in Python."""
    return python_with(PYTHON_CLIENTS, alone=(WITHOUT_ITS_SERVER,))


@cache
def python_with(packages: tuple[str, ...], alone: tuple[str, ...] = ()) -> Path:
    """An interpreter with these packages; those that are ``alone`` without what they need."""

    def install(folder: Path) -> None:
        uv, python = str(BIN / "uv"), str(folder / "bin" / "python")
        _run([uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, str(folder)])
        pip = [uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python]
        _run([*pip, *packages])
        if alone:
            _run([*pip, "--no-deps", *alone])

    version = f"python-{sys.version_info.major}.{sys.version_info.minor}"
    return _cached([version, *packages, *alone], install) / "bin" / "python"


@cache
def memento_folder() -> Path:
    """The folder of npm packages that holds the Memento memory server."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        pytest.skip("npm and node are not installed")

    def install(folder: Path) -> None:
        quiet = ["--no-audit", "--no-fund", "--no-update-notifier", "--ignore-scripts"]
        _run([npm, "install", *quiet, "--prefix", str(folder), MEMENTO])

    return _cached(["npm", MEMENTO], install) / "node_modules"


def _cached(names: Sequence[str], install: Callable[[Path], None]) -> Path:
    """A folder that was installed whole, now or some time before; skips the test without one."""
    digest = hashlib.sha256("\n".join(names).encode()).hexdigest()[:16]
    folder = user_cache_path("embed-pipeline") / "clients" / digest
    if folder.exists():
        return folder
    if digest in _REFUSED:
        pytest.skip(_REFUSED[digest])
    folder.parent.mkdir(parents=True, exist_ok=True)
    making = folder.with_name(f"{digest}.{os.getpid()}")
    try:
        install(making)
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(making, ignore_errors=True)
        _REFUSED[digest] = f"{', '.join(names)} cannot be installed: {_reason(error)}"
        pytest.skip(_REFUSED[digest])
    try:
        making.rename(folder)
    except OSError:
        # Another process was quicker.
        shutil.rmtree(making, ignore_errors=True)
    return folder


def _run(command: list[str]) -> None:
    subprocess.run(
        command, check=True, capture_output=True, text=True, timeout=LONGEST_INSTALLATION
    )


def _reason(error: Exception) -> str:
    said = getattr(error, "stderr", None) or str(error)
    return " ".join(str(said).split())[-300:]
