"""The units: hardened, told to stop as drains need it, and understood by systemd."""

import re
import shutil
import subprocess
from datetime import timedelta
from pathlib import Path

import pytest

from tests.repository.deploy.files import DOCKER, SECRETS, SYSTEMD, giving_back, load

UNITS = sorted(file.name for file in SYSTEMD.glob("*.service"))
PARENTS = ["embed-pipeline-celery.service", "embed-pipeline-code@.service"]
DRAINING = [*PARENTS, "embed-pipeline-worker@.service"]
COMMON = SYSTEMD / "embed-pipeline-.service.d/common.conf"
NEEDED = {
    "embed-pipeline-celery.service": SECRETS | {"CELERY_BROKER_URL"},
    "embed-pipeline-code@.service": SECRETS,
    "embed-pipeline-daemon.service": {"DAGSTER_PG_PASSWORD"},
    "embed-pipeline-metrics.service": {"NEO4J_PASSWORD"},
    "embed-pipeline-webserver.service": {"DAGSTER_PG_PASSWORD"},
    "embed-pipeline-worker@.service": {"NEO4J_PASSWORD", "OPENAI_API_KEY"},
}


def settings(file: Path, name: str) -> list[str]:
    return re.findall(rf"^{name}=(.*)$", file.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_gets_the_secrets_it_needs_and_no_others(unit: str) -> None:
    loaded = {line.partition(":")[0] for line in settings(SYSTEMD / unit, "LoadCredential")}
    files = [
        line.partition("=") for line in settings(SYSTEMD / unit, "Environment") if "_FILE=" in line
    ]

    assert {name.removesuffix("_FILE") for name, _, _ in files} == NEEDED[unit]
    assert {path for _, _, path in files} == {f"%d/{name}" for name in loaded}


@pytest.mark.parametrize("unit", UNITS)
def test_a_unit_reads_its_secrets_before_it_starts_anything(unit: str) -> None:
    commands = settings(SYSTEMD / unit, "ExecStart(?:Pre)?")

    assert commands
    assert all(c.startswith("/opt/embed-pipeline/deploy/with-secrets.sh ") for c in commands)


@pytest.mark.parametrize("unit", DRAINING)
def test_drains_have_the_time_to_give_their_jobs_back(unit: str) -> None:
    [seconds] = settings(SYSTEMD / unit, "TimeoutStopSec")

    assert timedelta(seconds=int(seconds)) > giving_back()


@pytest.mark.parametrize("unit", PARENTS)
def test_drains_below_a_server_are_told_to_stop(unit: str) -> None:
    assert settings(SYSTEMD / unit, "KillMode") == ["control-group"]


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("User", "embed-pipeline"),
        ("NoNewPrivileges", "yes"),
        ("ProtectSystem", "strict"),
        ("ProtectHome", "yes"),
        ("PrivateTmp", "yes"),
        ("CapabilityBoundingSet", ""),
        ("UMask", "0077"),
        ("StateDirectoryMode", "0700"),
    ],
)
def test_every_unit_is_hardened(setting: str, value: str) -> None:
    assert settings(COMMON, setting) == [value]
    assert [unit for unit in UNITS if settings(SYSTEMD / unit, setting)] == []
    assert all(unit.startswith("embed-pipeline-") for unit in UNITS)


def test_the_web_server_listens_on_this_machine_only() -> None:
    [command] = settings(SYSTEMD / "embed-pipeline-webserver.service", "ExecStart")

    assert " --host 127.0.0.1 " in command


def test_the_variables_of_the_storage_are_in_the_settings() -> None:
    storage = load(DOCKER / "dagster.yaml")["storage"]["postgres"]["postgres_db"]
    wanted = {value["env"] for value in storage.values() if isinstance(value, dict)}

    given = {line.partition("=")[0] for line in (SYSTEMD / "settings.env").read_text().splitlines()}

    assert wanted - given == {"DAGSTER_PG_PASSWORD"}


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="needs systemd-analyze")
def test_systemd_understands_every_unit(tmp_path: Path) -> None:
    shutil.copytree(SYSTEMD, tmp_path, dirs_exist_ok=True)
    for unit in UNITS:
        # What the units start is not installed here.
        text = (
            (SYSTEMD / unit)
            .read_text()
            .replace("=/opt/embed-pipeline/deploy/with-secrets.sh", "=/bin/true")
        )
        (tmp_path / unit).write_text(text)

    result = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", "--generators=no", *UNITS],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", "SYSTEMD_UNIT_PATH": f"{tmp_path}:"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert (result.returncode, result.stderr) == (0, "")
