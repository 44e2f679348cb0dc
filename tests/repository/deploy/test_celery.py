"""Drains as tasks of Celery: what Dagster and a worker make of the files."""

import importlib.util
import re
from pathlib import Path

import pytest
import yaml
from dagster._core.instance.config import dagster_instance_config
from dagster._serdes import ConfigurableClassData
from dagster_celery.launcher import CeleryRunLauncher

from tests.repository.deploy.files import DEPLOY, DOCKER, load

CELERY = DEPLOY / "celery"
BROKER = "redis://127.0.0.1:6379/0"


def test_dagster_accepts_the_instance_with_the_launcher(tmp_path: Path) -> None:
    parts = [DOCKER / "dagster.yaml", CELERY / "run_launcher.yaml"]
    (tmp_path / "dagster.yaml").write_text("".join(part.read_text() for part in parts))

    config, _ = dagster_instance_config(str(tmp_path))

    assert config["run_launcher"]["class"] == "CeleryRunLauncher"
    assert config["storage"] == load(DOCKER / "dagster.yaml")["storage"]
    # The launcher hands a resumed run to a task that does not know its arguments.
    assert config["run_monitoring"]["max_resume_run_attempts"] == 0


def test_the_launcher_takes_the_address_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", BROKER)
    named = load(CELERY / "run_launcher.yaml")["run_launcher"]

    data = ConfigurableClassData(named["module"], named["class"], yaml.safe_dump(named["config"]))
    launcher = data.rehydrate(as_type=CeleryRunLauncher)

    assert (launcher.broker, launcher.backend) == (BROKER, BROKER)


def test_a_worker_takes_no_run_that_it_cannot_begin_and_starts_none_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("CELERY_BROKER_URL", BROKER)
    file = CELERY / "dagster_celery_config.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    config = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(config)

    assert (config.broker_url, config.result_backend) == (BROKER, BROKER)
    assert config.worker_prefetch_multiplier == 1
    assert config.worker_disable_prefetch is True
    assert config.worker_max_tasks_per_child == 1
    assert config.task_acks_late is False


def test_units_and_worker_read_the_address_from_the_same_secret() -> None:
    added = (CELERY / "broker.conf").read_text()
    unit = (DEPLOY / "systemd/embed-pipeline-celery.service").read_text()

    for line in re.findall(r"^(?:LoadCredential|Environment)=.*$", added, re.MULTILINE):
        assert line in unit
    assert "/opt/embed-pipeline/deploy/celery" in unit
