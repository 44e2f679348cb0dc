"""Secrets come from files: what the scripts of the deployment do with them."""

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from embed_pipeline.settings.load import is_secret, load_settings, variables
from tests.repository.deploy.files import DEPLOY, DOCKER, SECRETS, SYSTEMD

PRINTED = "printenv NEO4J_PASSWORD OPENAI_API_KEY DAGSTER_PG_PASSWORD; printenv | grep _FILE"


def with_secrets(**environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DEPLOY / "with-secrets.sh"), "sh", "-c", PRINTED],
        env={"PATH": os.environ["PATH"], **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_a_secret_in_a_file_becomes_a_variable(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text('it\'s "$HOME" `id`\n')

    result = with_secrets(NEO4J_PASSWORD_FILE=str(file), OPENAI_API_KEY="sk-given")

    assert result.stdout == 'it\'s "$HOME" `id`\nsk-given\n'


def test_what_the_program_writes_is_closed_to_others(tmp_path: Path) -> None:
    script = str(DEPLOY / "with-secrets.sh")
    subprocess.run([script, "mkdir", "made"], cwd=tmp_path, umask=0o022, check=True)
    subprocess.run([script, "touch", "file"], cwd=tmp_path, umask=0o022, check=True)

    assert stat.S_IMODE((tmp_path / "made").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "file").stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("content", "environment", "message"),
    [
        pytest.param(None, {}, "NEO4J_PASSWORD_FILE cannot be read", id="no file"),
        pytest.param("x", {"NEO4J_PASSWORD": "y"}, "both set", id="two secrets"),
    ],
)
def test_a_secret_that_is_not_clear_stops_the_start(
    tmp_path: Path, content: str | None, environment: dict[str, str], message: str
) -> None:
    file = tmp_path / "password"
    if content is not None:
        file.write_text(content)

    result = with_secrets(NEO4J_PASSWORD_FILE=str(file), **environment)

    assert (result.returncode, result.stdout) == (2, "")
    assert message in result.stderr


def test_every_secret_of_the_settings_can_come_from_a_file() -> None:
    secrets = {name for name, field in variables().items() if is_secret(field)}

    assert secrets | {"DAGSTER_PG_PASSWORD"} == SECRETS
    assert (
        f"for name in {' '.join(['NEO4J_PASSWORD', 'OPENAI_API_KEY', 'DAGSTER_PG_PASSWORD'])}"
        in (DEPLOY / "with-secrets.sh").read_text()
    )


def test_the_secrets_of_compose_are_made_once_and_closed_to_others(tmp_path: Path) -> None:
    script = Path(shutil.copy(DOCKER / "make-secrets.sh", tmp_path))
    subprocess.run([str(script)], check=True)
    first = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}

    subprocess.run([str(script)], check=True)

    again = {file.name: file.read_text() for file in (tmp_path / "secrets").iterdir()}
    assert again == first
    assert first["neo4j_auth"] == f"neo4j/{first['neo4j_password']}"
    assert len(first["neo4j_password"]) == len(first["postgres_password"]) == 48
    assert stat.S_IMODE((tmp_path / "secrets").stat().st_mode) == 0o700


@pytest.mark.parametrize("folder", [DOCKER, SYSTEMD], ids=lambda folder: folder.name)
def test_the_settings_of_a_deployment_are_valid_and_hold_no_secret(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder / "settings.env"
    monkeypatch.setenv("NEO4J_PASSWORD", "from a file")

    settings = load_settings(file)

    assert settings.retention_days == 14
    assert not SECRETS & {line.partition("=")[0] for line in file.read_text().splitlines()}
