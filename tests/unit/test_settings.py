"""What the settings mean together; the values that each refuses are in tests/hostile/bad_input."""

from datetime import timedelta
from pathlib import Path

import pytest

from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.operations import wiring
from embed_pipeline.settings import Settings, load_settings, warnings

RETENTION = "EMBED_JOB_RETENTION_DAYS"


@pytest.fixture(autouse=True)
def _only_what_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RETENTION, "14")


MINUTE = timedelta(minutes=1)


def load(monkeypatch: pytest.MonkeyPatch, **environment: str) -> Settings:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    return load_settings()


def refusal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(monkeypatch, **environment)
    return str(caught.value)


def test_defaults_are_those_of_the_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch)

    assert (settings.rate_limit_requests, settings.rate_limit_interval) == (20, MINUTE)
    assert (settings.recovery_interval, settings.recovery_grace) == (MINUTE, timedelta(0))
    assert (settings.lease, settings.heartbeat) == (timedelta(minutes=5), timedelta(seconds=100))
    assert settings.max_attempts == 3
    assert (settings.drains_at_once, settings.run_retention_days) == (2, 14)
    assert (settings.metrics_interval, settings.reconcile_interval) == (MINUTE, MINUTE)
    assert settings.objective_age == 15 * MINUTE
    assert (settings.objective_failed_percent, settings.objective_coverage_percent) == (1, 95)
    assert settings.neo4j_uri == "bolt://127.0.0.1:7687"
    assert settings.uses_bundled_server


def test_m23_retention_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(RETENTION)

    message = refusal(monkeypatch)

    assert f"{RETENTION} is not set" in message
    assert "from 7 to 30" in message


@pytest.mark.parametrize(
    "value", ["6", "31", "0", "-1", "abc", "14.0", "1_4", "１４", " 14", "1e1"]
)
def test_m23_retention_outside_7_to_30_is_refused(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    message = refusal(monkeypatch, **{RETENTION: value})

    assert f"{RETENTION} is {value!r}" in message
    assert "from 7 to 30" in message


@pytest.mark.parametrize("value", ["7", "14", "30"])
def test_m23_retention_from_7_to_30_is_accepted(
    monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    assert load(monkeypatch, **{RETENTION: value}).retention_days == int(value)


def test_all_problems_are_reported_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    message = refusal(
        monkeypatch,
        **{
            RETENTION: "31",
            "EMBED_JOB_RECOVERY_INTERVAL": "-5",
            "EMBED_DRAINS_AT_ONCE": "0",
            "EMBEDDING_PROVIDER": "openai",
            "EMBED_JOB_LOCK_DURATION_MS": "10000",
            "EMBED_JOB_HEARTBEAT_INTERVAL_MS": "6000",
        },
    )

    assert message.startswith("5 settings are wrong:")
    assert f"{RETENTION} is '31'" in message
    assert "EMBED_JOB_RECOVERY_INTERVAL is '-5'" in message
    assert "EMBED_DRAINS_AT_ONCE is '0'" in message
    assert "OPENAI_API_KEY is not set, but EMBEDDING_PROVIDER is 'openai'" in message
    assert "EMBED_JOB_HEARTBEAT_INTERVAL_MS is 6000; it must be at most half" in message


@pytest.mark.parametrize(
    "environment",
    [
        {"NEO4J_URI": "bolt://neo4j:hunter2@host:7687"},
        {"OPENAI_BASE_URL": "https://me:hunter2@host/v1"},
        {"OPENAI_API_KEY": "hunter2", RETENTION: "31"},
        {"NEO4J_URI": "bolt+s://host", "NEO4J_PASSWORD": "hunter2", RETENTION: "x"},
    ],
)
def test_no_secret_is_shown(monkeypatch: pytest.MonkeyPatch, environment: dict[str, str]) -> None:
    assert "hunter2" not in refusal(monkeypatch, **environment)


def test_secrets_are_not_in_the_representation(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(
        monkeypatch, NEO4J_URI="bolt+s://h", NEO4J_PASSWORD="hunter2", OPENAI_API_KEY="hunter2"
    )

    assert "hunter2" not in repr(settings)
    assert settings.neo4j_password == "hunter2"


@pytest.mark.parametrize(
    ("name", "heartbeat", "lease"),
    [("development", 10, 60), ("production", 30, 300), ("high-reliability", 15, 180)],
)
def test_m57_presets_load_by_name(
    monkeypatch: pytest.MonkeyPatch, name: str, heartbeat: int, lease: int
) -> None:
    settings = load(monkeypatch, EMBED_JOB_PRESET=name)

    assert settings.heartbeat == timedelta(seconds=heartbeat)
    assert settings.lease == timedelta(seconds=lease)


def test_explicit_variables_win_over_the_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, EMBED_JOB_PRESET="production", EMBED_JOB_LOCK_DURATION_MS="90000")

    assert settings.lease == timedelta(seconds=90)
    assert settings.heartbeat == timedelta(seconds=30)


@pytest.mark.parametrize(("heartbeat", "fits"), [("30000", True), ("30001", False)])
def test_heartbeat_may_be_half_of_the_lease_and_not_more(
    monkeypatch: pytest.MonkeyPatch, heartbeat: str, fits: bool
) -> None:
    environment = {
        "EMBED_JOB_LOCK_DURATION_MS": "60000",
        "EMBED_JOB_HEARTBEAT_INTERVAL_MS": heartbeat,
    }

    if fits:
        assert load(monkeypatch, **environment).heartbeat == timedelta(seconds=30)
    else:
        assert "EMBED_JOB_HEARTBEAT_INTERVAL_MS is 30001" in refusal(monkeypatch, **environment)


@pytest.mark.parametrize(("provider", "requests"), [("openai", 20), ("mock", None)])
def test_m87_tokens_per_minute_are_a_limit_of_their_own(
    monkeypatch: pytest.MonkeyPatch, provider: str, requests: int | None
) -> None:
    settings = load(
        monkeypatch,
        OPENAI_API_KEY="k",
        EMBEDDING_PROVIDER=provider,
        EMBEDDING_TOKENS_PER_MINUTE="40000",
    )

    limits = RateLimits(requests, timedelta(minutes=1), tokens=40_000)
    assert wiring.rate_limits(settings) == limits
    assert wiring.drain_options(settings).tokens_per_request == 40_000


def test_m87_tokens_of_a_minute_need_a_window_of_one(monkeypatch: pytest.MonkeyPatch) -> None:
    said = refusal(
        monkeypatch, EMBEDDING_TOKENS_PER_MINUTE="40000", EMBEDDING_RATE_LIMIT_INTERVAL="1000"
    )

    assert "EMBEDDING_RATE_LIMIT_INTERVAL is 1000" in said
    assert "at least 60000" in said


def test_m4_interval_0_is_accepted_and_said_aloud_once(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, EMBED_JOB_RECOVERY_INTERVAL="0", OPENAI_API_KEY="k")

    assert settings.recovery_interval == timedelta(0)
    [warning] = warnings(settings)
    assert "EMBED_JOB_RECOVERY_INTERVAL is 0: recovery is OFF" in warning
    assert "at startup, periodically, in drains and after failed Dagster runs" in warning
    assert "`embed-pipeline recover`" in warning
    assert "\n" not in warning


def test_max_retries_is_another_name_for_max_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    assert load(monkeypatch, EMBED_JOB_MAX_RETRIES="5").max_attempts == 5
    assert "set one of them" in refusal(monkeypatch, EMBED_JOB_MAX_ATTEMPTS="4")


def test_m67_without_a_key_the_model_says_that_it_is_a_mock(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = load(monkeypatch)

    assert settings.provider is Provider.MOCK
    assert settings.model == "mock-text-embedding-3-small"
    assert any("MOCK" in text for text in warnings(settings))


def test_m67_openai_without_a_key_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "OPENAI_API_KEY is not set" in refusal(monkeypatch, EMBEDDING_PROVIDER="openai")


def test_with_a_key_auto_is_openai(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, OPENAI_API_KEY="sk-x\n")

    assert (settings.provider, settings.model) == (Provider.OPENAI, "text-embedding-3-small")
    assert settings.openai_api_key is not None
    assert settings.openai_api_key.get_secret_value() == "sk-x"
    assert warnings(settings) == []


@pytest.mark.parametrize(
    ("environment", "dimensions"),
    [
        ({"OPENAI_API_KEY": "k"}, 1536),
        ({"OPENAI_API_KEY": "k", "EMBEDDING_MODEL": "text-embedding-3-large"}, 3072),
        ({"OPENAI_API_KEY": "k", "EMBEDDING_DIMENSIONS": "512"}, 512),
        ({"OPENAI_API_KEY": "k", "EMBEDDING_MODEL": "nomic-embed-text"}, 1536),
        ({"EMBEDDING_PROVIDER": "local"}, 512),
        ({"EMBEDDING_PROVIDER": "local-fast"}, 256),
        ({"EMBEDDING_PROVIDER": "local-fast", "EMBEDDING_DIMENSIONS": "64"}, 64),
        ({}, 1536),
    ],
)
def test_dimensions_follow_the_model(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], dimensions: int
) -> None:
    assert load(monkeypatch, **environment).dimensions == dimensions


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        (
            {"OPENAI_API_KEY": "k", "EMBEDDING_DIMENSIONS": "2000"},
            "EMBEDDING_DIMENSIONS is 2000, but text-embedding-3-small makes vectors of 1 to 1536",
        ),
        (
            {"EMBEDDING_PROVIDER": "local", "EMBEDDING_DIMENSIONS": "256"},
            "EMBEDDING_DIMENSIONS is 256, but use-multilingual-3 makes vectors of 512",
        ),
        (
            {"EMBEDDING_PROVIDER": "local-fast", "EMBEDDING_DIMENSIONS": "100"},
            "EMBEDDING_DIMENSIONS is 100, but wordllama-256 makes vectors of 64 or 128 or 256",
        ),
        (
            {"EMBEDDING_PROVIDER": "local", "EMBEDDING_MODEL": "text-embedding-3-small"},
            "EMBEDDING_PROVIDER is 'local', which has use-multilingual-3",
        ),
        (
            {"OPENAI_API_KEY": "k", "EMBEDDING_MODEL": "wordllama-256"},
            "set EMBEDDING_PROVIDER to local-fast",
        ),
        ({"NEO4J_URI": "bolt+s://host"}, "NEO4J_PASSWORD is not set, but NEO4J_URI names a server"),
        ({"EMBED_ENTITY_KEY": "version"}, "EMBED_ENTITY_… contradict each other"),
    ],
)
def test_values_that_contradict_each_other_are_refused(
    monkeypatch: pytest.MonkeyPatch, environment: dict[str, str], reason: str
) -> None:
    assert reason in refusal(monkeypatch, **environment)


def test_a_misspelt_variable_is_pointed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, EMBED_JOB_RETENTION_DAY="7", OPENAI_API_KEY="k")

    [warning] = warnings(settings)
    assert warning.startswith("EMBED_JOB_RETENTION_DAY is not a setting")
    assert warning.endswith("Did you mean EMBED_JOB_RETENTION_DAYS?")


def test_a_variable_that_two_places_disagree_about_is_named_without_its_value(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text(
        "NEO4J_PASSWORD=hunter2\n"
        "EMBED_JOB_MAX_ATTEMPTS=5\n"
        "EMBED_QUEUE=acme\n"
        "EMBED_RECONCILE_INTERVAL=\n"
        f"{RETENTION}=${{{RETENTION}:-7}}\n"
        "SOMETHING_ELSE=1\n"
    )
    settings = load(
        monkeypatch,
        NEO4J_PASSWORD="hunter3",
        EMBED_JOB_MAX_ATTEMPTS="5",
        EMBED_QUEUE="",
        EMBED_RECONCILE_INTERVAL="5000",
        SOMETHING_ELSE="2",
    )

    [said] = [text for text in warnings(settings) if "environment wins" in text]

    assert said.startswith("NEO4J_PASSWORD is set in the environment and, to another value, in .e")
    assert "hunter" not in said
    assert settings.queue == "acme"


def test_a_dagster_that_lets_the_env_file_win_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text("EMBED_QUEUE=acme\n")
    settings = load(monkeypatch, DAGSTER_IS_DEV_CLI="1")

    said = "\n".join(warnings(settings))
    monkeypatch.setenv("EMBED_PIPELINE_ENVIRONMENT_FIRST", "true")

    assert "Dagster lets .env win over the environment here" in said
    assert warnings(settings) == [text for text in said.splitlines() if "Dagster lets" not in text]


def test_the_environment_wins_over_the_env_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / ".env").write_text(f"{RETENTION}=7\nEMBED_JOB_MAX_ATTEMPTS=9\n")

    settings = load(monkeypatch)

    assert (settings.retention_days, settings.max_attempts) == (14, 9)


def test_names_of_any_alphabet_are_read_from_the_env_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = ["EMBED_ENTITY_LABEL=Mein Film", "EMBED_ENTITY_TEMPLATE={título}: {first name}"]
    (tmp_path / ".env").write_text("\n".join(lines), encoding="utf-8")

    shape = load(monkeypatch).entity_shape

    assert (shape.label, shape.text) == ("Mein Film", ("título", "first name"))


def test_the_bundled_server_is_found_by_its_connection_file(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / ".embed_pipeline" / "neo4j"
    home.mkdir(parents=True)
    (home / "connection.json").write_text('{"uri": "bolt://127.0.0.1:9", "password": "p"}')

    settings = load(monkeypatch)

    assert (settings.neo4j_uri, settings.neo4j_password) == ("bolt://127.0.0.1:9", "p")


def test_a_server_of_the_users_own_wins_over_the_bundled_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / ".embed_pipeline" / "neo4j"
    home.mkdir(parents=True)
    (home / "connection.json").write_text('{"uri": "bolt://127.0.0.1:9", "password": "p"}')

    settings = load(monkeypatch, NEO4J_URI="neo4j+s://db.example", NEO4J_PASSWORD="own")

    assert not settings.uses_bundled_server
    assert (settings.neo4j_uri, settings.neo4j_password) == ("neo4j+s://db.example", "own")


@pytest.mark.parametrize("provider", ["local", "local-fast", "mock"])
def test_a_model_on_this_machine_is_limited_only_on_request_and_uses_up_nobodys_account(
    monkeypatch: pytest.MonkeyPatch, provider: str
) -> None:
    here = load(monkeypatch, EMBEDDING_PROVIDER=provider)
    asked = load(monkeypatch, EMBEDDING_RATE_LIMIT_TOKENS="7", EMBEDDING_RATE_LIMIT_NAME="shared")

    assert str(wiring.rate_limits(here)) == "no limit"
    assert here.rate_limit_name == provider
    assert wiring.rate_limits(asked).requests == 7
    assert asked.rate_limit_name == "shared"


def test_a_provider_elsewhere_is_limited_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, OPENAI_API_KEY="k")

    assert wiring.rate_limits(settings) == RateLimits(20, timedelta(minutes=1))
    assert settings.rate_limit_name == "default"


def test_a_key_that_nobody_uses_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = load(monkeypatch, EMBEDDING_PROVIDER="local", OPENAI_API_KEY="k")

    [warning] = warnings(settings)

    assert warning.startswith("OPENAI_API_KEY is set but not used: EMBEDDING_PROVIDER is 'local'")


@pytest.mark.parametrize(
    ("more", "usd", "warning"),
    [
        ({}, 5.0, None),
        ({"EMBEDDING_BATCH_LEAST": "101"}, 10.0, None),
        ({"EMBED_PIECES": "nodes"}, 10.0, "EMBEDDING_MODE is batch, but batches make no pieces"),
        ({"EMBEDDING_PROVIDER": "local"}, 10.0, "EMBEDDING_MODE is batch, but the provider local"),
        ({"EMBEDDING_MODE": "sync", "EMBED_PIECES": "nodes"}, 10.0, None),
    ],
    ids=["batch", "few", "pieces", "local", "sync"],
)
def test_only_what_goes_through_batches_costs_half(
    monkeypatch: pytest.MonkeyPatch, more: dict[str, str], usd: float, warning: str | None
) -> None:
    own = {
        "EMBEDDING_PROVIDER": "openai",
        "OPENAI_API_KEY": "k",
        "EMBEDDING_MODE": "batch",
        "EMBEDDING_BATCH_LEAST": "100",
    }
    settings = load(monkeypatch, **own | {"EMBEDDING_PRICE_USD_PER_MILLION": "10"} | more)

    assert settings.price_of(100).usd_per_million == usd
    said = [text for text in warnings(settings) if text.startswith("EMBEDDING_MODE")]
    assert [text.startswith(warning or "") for text in said] == [True] * bool(warning)


def test_the_retention_may_differ_by_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS_FAILED", "30")

    assert {status.value: kept.days for status, kept in load_settings().retention.items()} == {
        "completed": 14,
        "failed": 30,
        "cancelled": 14,
    }

    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS_FAILED", "31")
    with pytest.raises(ConfigurationError, match="EMBED_JOB_RETENTION_DAYS_FAILED is '31'"):
        load_settings()


def test_the_grace_of_a_stop_is_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    assert wiring.drain_options(load_settings()).grace == timedelta(seconds=30)

    monkeypatch.setenv("EMBED_JOB_STOP_GRACE_MS", "5000")

    assert wiring.drain_options(load_settings()).grace == timedelta(seconds=5)
