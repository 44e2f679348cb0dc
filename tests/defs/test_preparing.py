"""Sensors whose last tick is still to come, because the clock of the machine was set back."""

import os
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import dagster as dg
import pytest
from dagster._core.remote_origin import (
    InProcessCodeLocationOrigin,
    RemoteInstigatorOrigin,
    RemoteRepositoryOrigin,
)
from dagster._core.scheduler.instigation import (
    InstigatorState,
    InstigatorStatus,
    InstigatorType,
    SensorInstigatorData,
)
from dagster._core.types.loadable_target_origin import LoadableTargetOrigin

from embed_pipeline.defs.preparing import forget_ticks_ahead

HOUR = 3600.0


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    """One with files: that in memory knows no sensors."""
    with dg.DagsterInstance.local_temp(str(tmp_path)) as instance:
        yield instance


def add_sensor(instance: dg.DagsterInstance, name: str, data: SensorInstigatorData) -> None:
    location = InProcessCodeLocationOrigin(LoadableTargetOrigin(), location_name="test")
    origin = RemoteInstigatorOrigin(RemoteRepositoryOrigin(location, "test"), name)
    instance.add_instigator_state(
        InstigatorState(origin, InstigatorType.SENSOR, InstigatorStatus.RUNNING, data)
    )


def data_of(instance: dg.DagsterInstance) -> SensorInstigatorData:
    [state] = instance.all_instigator_state()
    assert isinstance(state.instigator_data, SensorInstigatorData)
    return state.instigator_data


@pytest.mark.parametrize("field", ["last_tick_timestamp", "last_tick_start_timestamp"])
def test_a_sensor_whose_last_tick_is_still_to_come_may_tick_at_once(
    instance: dg.DagsterInstance, field: str
) -> None:
    ahead = SensorInstigatorData(cursor="as it was", min_interval=5)
    add_sensor(instance, "ahead", ahead._replace(**{field: time.time() + HOUR}))

    assert forget_ticks_ahead(instance) == ["ahead"]

    assert data_of(instance) == ahead


def test_a_sensor_that_has_ticked_keeps_its_pace(instance: dg.DagsterInstance) -> None:
    ticked = SensorInstigatorData(
        last_tick_timestamp=time.time(), last_tick_start_timestamp=time.time(), min_interval=5
    )
    add_sensor(instance, "ticked", ticked)
    add_sensor(instance, "new", SensorInstigatorData(min_interval=5))

    assert forget_ticks_ahead(instance) == []


def test_everything_of_dagster_is_closed_to_other_users(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "dagster.yaml"
    log = home / "storage" / "a-run" / "compute_logs" / "drain.err"
    log.parent.mkdir(parents=True)
    for file in (log, elsewhere):
        file.touch(mode=0o644)
    (home / "dagster.yaml").symlink_to(elsewhere)

    subprocess.run(
        [sys.executable, "-m", "embed_pipeline.defs.preparing"],
        env={**os.environ, "DAGSTER_HOME": str(home)},
        umask=0o022,
        check=True,
    )

    inside = [path for path in (home, *home.rglob("*")) if not path.is_symlink()]
    assert (home / "history" / "runs.db").exists()
    assert {stat.S_IMODE(path.stat().st_mode) for path in inside if path.is_dir()} == {0o700}
    assert {stat.S_IMODE(path.stat().st_mode) for path in inside if path.is_file()} == {0o600}
    assert stat.S_IMODE(elsewhere.stat().st_mode) == 0o644
