"""``embed-pipeline`` in a process of its own that need not load everything first.

A command loads for one to two seconds of processor time. Here one process has loaded it all and
forks for each command: what runs is the real ``main``, with a folder, variables and output of its
own.
"""

import atexit
import importlib
import json
import os
import pkgutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Final, NoReturn

LOADED: Final = ("settings", "store", "embedding", "worker", "operations", "cli")
ONE_AT_A_TIME: Final = threading.Lock()


def run(
    arguments: Sequence[str], *, folder: Path, environment: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run ``embed-pipeline`` with these arguments, and nothing of this process's environment."""
    with tempfile.TemporaryDirectory() as place, ONE_AT_A_TIME:
        out, err = Path(place, "out"), Path(place, "err")
        order = {
            "arguments": ["embed-pipeline", *arguments],
            "folder": str(folder),
            "environment": dict(environment),
            "out": str(out),
            "err": str(err),
        }
        origin = _origin()
        assert origin.stdin is not None
        assert origin.stdout is not None
        origin.stdin.write(json.dumps(order) + "\n")
        origin.stdin.flush()
        code = int(origin.stdout.readline())
        return subprocess.CompletedProcess(
            list(arguments), code, out.read_text("utf-8"), err.read_text("utf-8")
        )


@cache
def _origin() -> subprocess.Popen[str]:
    """The process that forks; it ends with its input, and so with us."""
    process = subprocess.Popen(
        [sys.executable, "-m", __name__],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def end() -> None:
        process.communicate()

    atexit.register(end)
    return process


def serve() -> None:
    """Fork for every order, and say with which code the command has ended."""
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            _become(**json.loads(line))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


def _become(
    arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str
) -> NoReturn:
    from embed_pipeline.cli.app import main

    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in ((0, os.devnull), (1, out), (2, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT), number)
    sys.argv = arguments
    # Else the usage says that this module is the command.
    sys.modules["__main__"].__package__ = None
    # Its end is that of any process: what it has registered is run, spans are sent.
    sys.exit(main())


def _load() -> None:
    """What commands load when they need it; nothing of it reads the environment."""
    for name in LOADED:
        package = importlib.import_module(f"embed_pipeline.{name}")
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)


if __name__ == "__main__":
    _load()
    serve()
