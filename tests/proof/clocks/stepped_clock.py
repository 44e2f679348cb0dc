"""A clock that is set while programs run by it: libfaketime, steered through a file."""

import asyncio
import importlib.util
import sys
import time
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from tests.support.drain_harness import DrainUnderTest

HOUR = timedelta(hours=1)
PRECISION = timedelta(minutes=1)


def library() -> Path:
    """The library of the package ``libfaketime``; whoever lacks it skips."""
    package = importlib.util.find_spec("libfaketime")
    if sys.platform != "linux" or package is None or package.origin is None:
        pytest.skip("libfaketime is not installed, or does not work on this system")
    found = Path(package.origin).parent / "vendor/libfaketime/src/libfaketime.so.1"
    if not found.exists():
        pytest.skip(f"libfaketime was installed without {found.name}")
    return found


@dataclass(frozen=True)
class SteppedClock:
    """The time of day of whatever runs in its environment; the monotonic clocks stay right."""

    file: Path

    def __post_init__(self) -> None:
        self.set(timedelta(0))

    def set(self, offset: timedelta) -> None:
        """Let it differ from the right time by so much; noticed within two seconds."""
        new = self.file.with_suffix(".new")
        new.write_text(f"{offset // timedelta(seconds=1):+05d}\n")
        # At once: half a file would be half an offset.
        new.replace(self.file)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "LD_PRELOAD": str(library()),
            "FAKETIME_TIMESTAMP_FILE": str(self.file),
            # Seconds. With FAKETIME_NO_CACHE it would read the file at every look at the clock, and
            # this build of it is not safe for threads: Neo4j does not live through its start.
            "FAKETIME_CACHE_DURATION": "1",
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
        }


async def step(queue: DrainUnderTest, clock: SteppedClock, offset: timedelta) -> None:
    """Set the clock of the server, and wait until it has noticed."""
    clock.set(offset)
    async with asyncio.timeout(300):
        while abs(await _offset(queue) - offset) > PRECISION:  # noqa: ASYNC110 - another process
            await asyncio.sleep(0.1)


async def _offset(queue: DrainUnderTest) -> timedelta:
    [row] = await queue.run("RETURN datetime.realtime().epochMillis AS now")
    return timedelta(seconds=row["now"] / 1000 - time.time())
