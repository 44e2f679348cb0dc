"""Ending all processes of a group: in order if they do, by force if they do not."""

import os
import signal
import time
from collections.abc import Callable
from typing import Final

STOP_SECONDS: Final = 120
"""As every deployment file: longer than a drain gives back, whatever EMBED_JOB_STOP_GRACE_MS."""
POLL_SECONDS: Final = 0.25


def stop_group(group: int, reap: Callable[[], object] = lambda: None) -> None:
    """Interrupt Dagster's whole group at once, so that runs release their leases, and wait."""
    try:
        _signal_group(group, signal.SIGINT)
        deadline = time.monotonic() + STOP_SECONDS
        while _is_alive(group) and time.monotonic() < deadline:
            reap()
            time.sleep(POLL_SECONDS)
    finally:
        # Also when a second Ctrl-C ended the wait; an ended group does not mind.
        _signal_group(group, signal.SIGKILL)


def _is_alive(group: int) -> bool:
    """Say whether a process of the group runs; zombies that are not collected stay."""
    import psutil

    if not _signal_group(group, 0):
        return False
    for process in psutil.process_iter(["status"]):
        try:
            is_member = os.getpgid(process.pid) == group
        except (ProcessLookupError, PermissionError):
            continue
        if is_member and process.info["status"] != psutil.STATUS_ZOMBIE:
            return True
    return False


def _signal_group(group: int, number: int) -> bool:
    try:
        os.killpg(group, number)
    except (ProcessLookupError, PermissionError):
        return False
    return True
