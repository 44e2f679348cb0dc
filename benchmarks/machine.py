"""What the figures were measured on."""

import os
import platform
from pathlib import Path

import psutil

GIB = 2**30


def size() -> str:
    """Cores and memory of this machine."""
    memory = psutil.virtual_memory().total / GIB
    return f"{os.cpu_count()} cores ({_processor()}), {memory:.0f} GiB"


def describe(neo4j_version: str) -> str:
    """Size and software of this machine, in one line."""
    return (
        f"{size()}, "
        f"{platform.system()}, Python {platform.python_version()}, Neo4j {neo4j_version}; "
        "server, clients and provider share the machine"
    )


def _processor() -> str:
    path = Path("/proc/cpuinfo")
    names = [
        line.partition(":")[2].strip()
        for line in (path.read_text().splitlines() if path.exists() else [])
        if line.startswith("model name")
    ]
    return names[0] if names else platform.machine()
