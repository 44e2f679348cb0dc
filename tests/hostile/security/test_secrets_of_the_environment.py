"""The redactor knows every secret of the environment, whoever it belongs to (I19, T3)."""

import json
import logging
from pathlib import Path
from urllib.parse import quote

import pytest

from embed_pipeline.cli import app as cli
from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.domain.redact import redact, secrets_of
from embed_pipeline.logs import OneLineFormatter
from embed_pipeline.operations import wiring
from embed_pipeline.paths import local_connection_file
from embed_pipeline.settings import load_settings
from embed_pipeline.settings.secrets import known_secrets, without_secrets

SECRET = "wJalrXUtn\"FEMI/K7'MDENG"
TEXT = "treated for Parkinson"
PEM = "-----BEGIN KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQ\nx9sLq2ZfT0aWvYp7KdRe3\n-----END KEY-----"


@pytest.mark.parametrize(
    "name",
    [
        "AWS_SECRET_ACCESS_KEY",
        "GITHUB_TOKEN",
        "PGPASSWORD",
        "db_passwd",
        "SSH_PRIVATE",
        "AZURE_CREDENTIAL",
        "SENTRY_DSN",
        "AZURE_STORAGE_CONNECTION_STRING",
        "REGISTRY_AUTH",
        "NPM_CONFIG__AUTH",
        "MYSQL_PWD",
        "GPG_PASSPHRASE",
    ],
)
def test_a_variable_whose_name_says_so_is_a_secret(name: str) -> None:
    assert redact(f"x {SECRET} y", secrets_of([(name, SECRET)])) == "x *** y"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("EMBEDDING_RATE_LIMIT_TOKENS", "1000000"),
        ("KEYBOARD", "english"),
        ("POSTGRES_PASSWORD", "postgres"),
        ("SOME_AUTH", "disabled"),
        ("OPENAI_API_KEY_FILE", "/run/secrets/openai_api_key"),
        ("SSH_AUTH_SOCK", "/tmp/ssh-XXXXabcd/agent.123"),
        ("HOME", "/home/somebody-or-other"),
        ("EMPTY_TOKEN", ""),
        ("DATABASE_URL", "postgresql://host/without-password"),
    ],
)
def test_ordinary_words_numbers_and_places_stay_readable(name: str, value: str) -> None:
    assert secrets_of([(name, value)]) == ()


@pytest.mark.parametrize(
    "written",
    [
        SECRET,
        json.dumps(SECRET),
        repr(SECRET),
        quote(SECRET, ""),
        f"https://x/?k={quote(SECRET, '')}",
    ],
    ids=["as it is", "in JSON", "in Python", "in an address", "in a query"],
)
def test_a_secret_is_found_however_it_is_written(written: str) -> None:
    shown = redact(f"it said {written}!", secrets_of([("SOME_TOKEN", SECRET)]))

    assert "***" in shown
    assert [part for part in ("wJalrXUtn", "FEMI", "MDENG") if part in shown] == []


def test_the_password_inside_an_address_is_a_secret() -> None:
    secrets = secrets_of([("CELERY_BROKER_URL", "redis://:corr%40ct-horse@redis:6379/0")])

    assert redact("AUTH corr@ct-horse, or corr%40ct-horse", secrets) == "AUTH ***, or ***"


@pytest.mark.parametrize("line", PEM.splitlines()[1:3])
def test_each_line_of_a_key_is_a_secret(line: str) -> None:
    assert redact(f"bad line {line}", secrets_of([("TLS_PRIVATE_KEY", PEM)])) == "bad line ***"


@pytest.mark.parametrize(
    "value",
    [
        '{"type": "service", "private_key": "MIIEvQIBADANBgkqhkiG9w0BAQ"}',
        "AccountName=acme;AccountKey=MIIEvQIBADANBgkqhkiG9w0BAQ;Suffix=net",
    ],
)
def test_a_secret_inside_a_document_is_found_alone(value: str) -> None:
    shown = redact("no: MIIEvQIBADANBgkqhkiG9w0BAQ", secrets_of([("CLOUD_CREDENTIALS", value)]))

    assert shown == "no: ***"


def test_a_secret_that_holds_another_is_masked_whole() -> None:
    secrets = secrets_of(
        [("A_TOKEN", "first-part-12345"), ("B_TOKEN", "first-part-12345-and-more")]
    )

    assert redact("x first-part-12345-and-more", secrets) == "x ***"


def test_settings_that_hold_no_secret_stay_readable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_ENTITY_KEY", "external_identifier")

    assert without_secrets("no external_identifier") == "no external_identifier"


def test_settings_in_a_file_and_the_bundled_server_are_known_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".env").write_text("OTHER_TOKEN=from-the-file-42\n")
    monkeypatch.setenv("OTHER_TOKEN", "from-the-environment-42")
    local_connection_file().parent.mkdir(parents=True)
    local_connection_file().write_text(json.dumps({"password": "of-the-bundled-server"}))

    said = without_secrets("from-the-file-42 from-the-environment-42 of-the-bundled-server")

    assert said == "*** *** ***"


def test_what_is_stored_on_jobs_is_redacted_with_all_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("OPENAI_API_KEY", "short")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)

    secrets = wiring.queue_config(load_settings()).secrets

    assert {"short", *known_secrets()} <= set(secrets)
    assert SECRET in secrets


def test_a_line_of_the_log_is_redacted_with_all_of_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    record = logging.LogRecord("embed_pipeline", 30, "f", 1, "it said %s", (SECRET,), None)

    assert OneLineFormatter().format(record).endswith("it said ***")


def test_an_error_in_the_log_shows_no_words_of_other_libraries() -> None:
    try:
        raise ValueError(TEXT)
    except ValueError as error:
        kind = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("asyncio", 40, "f", 1, "never retrieved", (), kind)

    line = OneLineFormatter().format(record)

    assert "builtins.ValueError" in line
    assert TEXT not in line


@pytest.mark.parametrize("kind", [EmbedPipelineError, RuntimeError])
def test_the_command_line_shows_none_of_them(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], kind: type[Exception]
) -> None:
    def fail(_words: list[str]) -> None:
        try:
            raise KeyError(SECRET)
        except KeyError:
            raise kind(f"it said {SECRET}, and ended") from None

    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    monkeypatch.setattr(cli, "app", fail)

    with pytest.raises(SystemExit) as ended:
        cli.main()

    said = capsys.readouterr().err
    assert ended.value.code == 1
    assert "it said ***, and ended" in said
    assert SECRET not in said
