"""Dagster's configuration in a deployment: what `make dev` has, on another storage."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from dagster._core.instance.config import dagster_instance_config
from dagster._core.remote_origin import GrpcServerCodeLocationOrigin
from dagster._core.workspace.load import location_origins_from_yaml_paths

from tests.repository.deploy.files import DOCKER, SYSTEMD, load
from tests.support.project import ROOT


def variables(config: Any) -> set[str]:
    if not isinstance(config, Mapping):
        return set()
    named = {config["env"]} if "env" in config else set()
    return named.union(*(variables(value) for value in config.values()))


def test_the_instance_of_a_deployment_differs_in_nothing_but_its_storage() -> None:
    deployed = load(DOCKER / "dagster.yaml")

    assert deployed.pop("storage")
    assert deployed == load(ROOT / "dagster.yaml")


def test_dagster_accepts_the_instance(tmp_path: Path) -> None:
    (tmp_path / "dagster.yaml").write_text((DOCKER / "dagster.yaml").read_text())

    config, _ = dagster_instance_config(str(tmp_path))

    assert config["storage"]["postgres"]["postgres_db"]["scheme"] == "postgresql+psycopg2"


def test_who_and_where_of_the_storage_come_from_the_environment() -> None:
    storage = load(DOCKER / "dagster.yaml")["storage"]

    assert variables(storage) == {
        "DAGSTER_PG_HOST",
        "DAGSTER_PG_USERNAME",
        "DAGSTER_PG_PASSWORD",
        "DAGSTER_PG_DATABASE",
    }


@pytest.mark.parametrize("folder", [DOCKER, SYSTEMD], ids=lambda folder: folder.name)
def test_dagster_finds_the_code_server_of_the_workspace(folder: Path) -> None:
    [origin] = location_origins_from_yaml_paths([str(folder / "workspace.yaml")])

    assert isinstance(origin, GrpcServerCodeLocationOrigin)
    assert (origin.port, origin.location_name) == (4000, "embed_pipeline")
