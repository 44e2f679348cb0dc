"""Whoever stops a drain by force waits until it has given its jobs back, whatever its grace."""

from datetime import timedelta
from pathlib import Path

import pytest

from embed_pipeline.devserver.process_group import STOP_SECONDS
from tests.repository.deploy.files import DOCKER, giving_back, load
from tests.support.project import ROOT


def test_make_dev_waits_for_the_longest_grace() -> None:
    assert timedelta(seconds=STOP_SECONDS) > giving_back()


@pytest.mark.parametrize("folder", [ROOT, DOCKER], ids=["own", "docker"])
def test_dagster_waits_for_the_longest_grace_after_terminate(folder: Path) -> None:
    seconds = load(folder / "dagster.yaml")["run_monitoring"]["cancel_timeout_seconds"]

    assert timedelta(seconds=seconds) > giving_back()
