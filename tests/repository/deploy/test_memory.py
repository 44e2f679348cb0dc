"""The bounds of memory let every part do what was measured, with room."""

import re
from collections.abc import Callable
from typing import Final

import pytest

from benchmarks.memory import ALLOWED
from tests.repository.deploy.files import DEPLOY, DOCKER, KUBERNETES, SYSTEMD, load

MIB: Final = 2**20
UNITS: Final = {"m": MIB, "g": 2**30, "M": MIB, "G": 2**30, "Mi": MIB, "Gi": 2**30}
DRAIN: Final = ALLOWED * MIB
"""The most that a drain may take; docs/performance.md has what it takes."""
CODE_SERVER: Final = 400 * 10**6
"""Of a code server without drains, measured: docs/operations.md."""
MARGIN: Final = 1.25


def size(text: str) -> int:
    """A size as Docker, systemd and Kubernetes write it, in bytes."""
    [(number, unit)] = re.findall(r"^([0-9]+)([a-zA-Z]+)$", text)
    return int(number) * UNITS[unit]


def unit_size(name: str) -> int:
    text = (SYSTEMD / f"embed-pipeline-{name}.service").read_text()
    [found] = re.findall(r"^MemoryMax=(\S+)$", text, re.MULTILINE)
    return size(found)


def drains_at_once(settings: str) -> int:
    [found] = re.findall(r"^EMBED_DRAINS_AT_ONCE=([0-9]+)$", settings, re.MULTILINE)
    return int(found)


def below_docker() -> tuple[int, int]:
    service = load(DOCKER / "compose.yaml")["services"]["code"]
    return size(service["mem_limit"]), drains_at_once((DOCKER / "settings.env").read_text())


def below_systemd() -> tuple[int, int]:
    return unit_size("code@"), drains_at_once((SYSTEMD / "settings.env").read_text())


def below_celery() -> tuple[int, int]:
    """The worker itself was not measured; it counts as a code server."""
    settings = (DEPLOY / "celery/dagster_celery_config.py").read_text()
    [runs] = re.findall(r"^worker_concurrency = ([0-9]+)$", settings, re.MULTILINE)
    return unit_size("celery"), int(runs)


@pytest.mark.parametrize("parent", [below_docker, below_systemd, below_celery])
def test_a_server_has_room_for_itself_and_for_all_the_drains_below_it(
    parent: Callable[[], tuple[int, int]],
) -> None:
    allowed, drains = parent()

    assert drains >= 1
    assert allowed >= MARGIN * (CODE_SERVER + drains * DRAIN)


def test_a_worker_without_dagster_has_room_for_its_drain() -> None:
    assert unit_size("worker@") >= MARGIN * DRAIN


def test_a_pod_has_room_for_a_drain_and_asks_for_what_it_takes() -> None:
    values = load(KUBERNETES / "values.yaml")
    [code] = values["dagster-user-deployments"]["deployments"]
    pod = values["runLauncher"]["config"]["k8sRunLauncher"]["resources"]

    assert size(pod["limits"]["memory"]) >= MARGIN * DRAIN
    assert size(pod["requests"]["memory"]) >= DRAIN
    # Drains are pods of their own there.
    assert size(code["resources"]["limits"]["memory"]) >= MARGIN * CODE_SERVER
