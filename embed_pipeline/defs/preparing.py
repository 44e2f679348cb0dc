"""``python -m embed_pipeline.defs.preparing``: makes the storage of ``DAGSTER_HOME`` ready.

Creates it where it is missing: web server and daemon may break a new one when both do that at once.
Closes it to other users, also what an earlier version left open. And lets sensors go on after the
clock of this machine was set back: Dagster compares the time with that of the last tick, and lets
them stand still until the clock has caught up, over restarts too.
"""

import os
import sys
import time
from pathlib import Path
from typing import Final

import dagster as dg
from dagster._core.scheduler.instigation import (
    InstigatorType,
    SensorInstigatorData,
)

from embed_pipeline.paths import PRIVATE_UMASK, make_private

JITTER: Final = 1.0
"""Seconds; a tick may be noted while we look."""


def forget_ticks_ahead(instance: dg.DagsterInstance) -> list[str]:
    """Forget when sensors ticked last, where that is still to come; return their names."""
    now, names = time.time() + JITTER, []
    for state in instance.all_instigator_state(instigator_type=InstigatorType.SENSOR):
        data = state.instigator_data
        if not isinstance(data, SensorInstigatorData):
            continue
        if max(data.last_tick_timestamp or 0.0, data.last_tick_start_timestamp or 0.0) > now:
            forgotten = data._replace(last_tick_timestamp=None, last_tick_start_timestamp=None)
            instance.update_instigator_state(state.with_data(forgotten))
            names.append(state.instigator_name)
    return sorted(names)


if __name__ == "__main__":
    os.umask(PRIVATE_UMASK)
    with dg.DagsterInstance.get() as home:
        for name in forget_ticks_ahead(home):
            sys.stdout.write(f"sensor {name} goes on: its last tick was still to come\n")
        make_private(Path(home.root_directory))
