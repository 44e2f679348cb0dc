"""The files of the deployment, read as whoever deploys them reads them."""

import dataclasses
import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import yaml

from embed_pipeline.settings import Settings
from embed_pipeline.store.database import Database
from tests.support.project import ROOT

DEPLOY = ROOT / "deploy"
DOCKER = DEPLOY / "docker"
SYSTEMD = DEPLOY / "systemd"
KUBERNETES = DEPLOY / "kubernetes"

SECRETS = {"NEO4J_PASSWORD", "OPENAI_API_KEY", "DAGSTER_PG_PASSWORD"}


def load(file: Path) -> Any:
    return yaml.safe_load(file.read_text(encoding="utf-8"))


def giving_back() -> timedelta:
    """How long a drain may take after SIGTERM: its longest grace, then a slow database."""
    [patience] = [
        field.default for field in dataclasses.fields(Database) if field.name == "patience"
    ]
    assert isinstance(patience, timedelta)
    [longest] = [
        rule.le for rule in Settings.model_fields["stop_grace"].metadata if hasattr(rule, "le")
    ]
    return longest + patience


def is_pinned(image: str) -> bool:
    """Say whether an image is named by its full version, or by its digest."""
    tag = image.rpartition("/")[2].partition(":")[2]
    return "@sha256:" in image or re.match(r"[0-9]+\.[0-9]+(\.[0-9]+)?\b", tag) is not None


def duration(text: str) -> timedelta:
    """A time as compose writes it."""
    [(number, unit)] = re.findall(r"^([0-9]+)(s|m)$", text)
    return timedelta(seconds=int(number) * {"s": 1, "m": 60}[unit])
