"""Every setting with values it must refuse; a setting without a row here fails."""

from collections.abc import Mapping
from itertools import combinations
from typing import Any, cast

import pytest

from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.profiles import PROFILES
from embed_pipeline.settings import Settings, load_settings, warnings
from embed_pipeline.settings.load import is_secret, variables
from tests.hostile.bad_input.hostile import ODD_NAMES, REFUSED_NAMES

DAY_MS = 86_400_000
RETENTION = "EMBED_JOB_RETENTION_DAYS"
NEXT_STEP = "Set them in the environment or in .env."

NUMBERS = {
    "EMBEDDING_DIMENSIONS": (1, 4_096),
    "EMBEDDING_RATE_LIMIT_TOKENS": (1, 1_000_000),
    "EMBEDDING_RATE_LIMIT_INTERVAL": (1, DAY_MS),
    "EMBEDDING_TOKENS_PER_MINUTE": (1, 10_000_000_000),
    "EMBED_ENTITY_RELATIONS_MOST": (1, 100),
    "EMBED_RELATIONS_DELAY_MS": (0, DAY_MS),
    "EMBED_PIECES_TOKENS": (16, 8_191),
    "EMBED_PIECES_MOST": (1, 10_000),
    "EMBED_JOB_RETENTION_DAYS": (7, 30),
    "EMBED_JOB_RETENTION_DAYS_COMPLETED": (7, 30),
    "EMBED_JOB_RETENTION_DAYS_FAILED": (7, 30),
    "EMBED_JOB_RETENTION_DAYS_CANCELLED": (7, 30),
    "EMBED_JOB_STOP_GRACE_MS": (0, 80_000),
    "EMBEDDING_MAX_INPUTS": (1, 2_048),
    "EMBEDDING_MAX_TOKENS": (64, 8_191),
    "EMBEDDING_MAX_REQUEST_TOKENS": (64, 300_000),
    "EMBED_JOB_RECOVERY_INTERVAL": (0, DAY_MS),
    "EMBED_JOB_RECOVERY_GRACE_MS": (0, DAY_MS),
    "EMBED_JOB_LOCK_DURATION_MS": (1_000, 3_600_000),
    "EMBED_JOB_HEARTBEAT_INTERVAL_MS": (100, DAY_MS),
    "EMBED_JOB_TIMEOUT_MS": (1_000, DAY_MS),
    "EMBED_JOB_MAX_ATTEMPTS": (1, 100),
    "EMBED_JOB_MAX_RETRIES": (1, 100),
    "EMBED_DRAINS_AT_ONCE": (1, 1_000),
    "EMBEDDING_BATCH_LEAST": (1, 50_000),
    "EMBED_METRICS_INTERVAL": (5_000, DAY_MS),
    "EMBED_RECONCILE_INTERVAL": (0, DAY_MS),
    "EMBED_RUN_RETENTION_DAYS": (1, 3_650),
    "EMBED_OBJECTIVE_AGE_MS": (1_000, 30 * DAY_MS),
    "EMBED_OBJECTIVE_FAILED_PERCENT": (0, 100),
    "EMBED_OBJECTIVE_COVERAGE_PERCENT": (0, 100),
}
CHOICES = {
    "EMBED_ALLOW_PLAINTEXT_BOLT": ("true", "false"),
    "EMBEDDING_SEND_DIMENSIONS": ("true", "false"),
    "EMBEDDING_PROFILE": tuple(PROFILES),
    "EMBEDDING_ENCODING": ("base64", "float"),
    "EMBED_FOREIGN_VECTORS": ("replace", "keep"),
    "EMBED_KEEP_OLD_VECTORS": ("true", "false"),
    "EMBED_VECTOR_INDEX_QUANTIZED": ("auto", "true", "false"),
    "EMBEDDING_PROVIDER": ("auto", "openai", "local", "local-fast", "mock"),
    "EMBED_ENTITY_RELATIONS_DIRECTION": ("both", "out", "in"),
    "EMBED_PIECES": ("mean", "nodes"),
    "EMBED_CODE_SERVER": ("all", "drains"),
    "EMBED_STANDBY": ("true", "false"),
    "EMBEDDING_MODE": ("sync", "batch"),
    "EMBED_JOB_PRESET": ("development", "production", "high-reliability"),
}
NAMES = (
    "EMBED_ENTITY_LABEL",
    "EMBED_ENTITY_KEY",
    "EMBED_ENTITY_VERSION",
    "EMBED_ENTITY_VALID_TO",
    "EMBED_ENTITY_ORDER",
    "EMBED_ENTITY_VECTOR",
    "EMBED_ENTITY_TYPE",
    "EMBED_ENTITY_OBSERVATIONS",
    "EMBED_ENTITY_RELATIONS_WORD",
    "EMBED_VECTOR_INDEX",
)
TEXTS: dict[str, tuple[str, ...]] = {
    "NEO4J_URI": (
        *("localhost:7687", "http://localhost:7474", "https://localhost", "file:///etc/passwd"),
        *("bolt://", "bolt://host:0", "bolt://host:65536", "bolt://host:x", "bolt:/host", "bolt"),
        *(" bolt://localhost", "bolt://localhost ", "bolt://local host", "bolt://localhost\n"),
        *("bolt://[::1", "bolt://ｈost", "bolts://localhost", "neo4j+x://localhost"),
    ),
    "NEO4J_USERNAME": (" ", " neo4j", "neo4j ", "neo4j\n", "a\x1b[31mb", "n" * 129),
    "NEO4J_PASSWORD": (" ", "\t\n"),
    "NEO4J_DATABASE": ("n", "1abc", "a b", "neo4j ", " neo4j", "neo4j;", "neo_4j", "n" * 64),
    "OPENAI_API_KEY": (" ", "sk-a b", "sk-a\nb", "sk-ä", "ｓｋ-1"),
    "OPENAI_BASE_URL": (
        *("localhost:8000", "ftp://host", "file:///etc/passwd", "https://", "https:///v1", "https"),
        *("http://provider.example/v1", "http://10.0.0.7:8000/v1", "http://0.0.0.0:8000/v1"),
        *("http://169.254.169.254/v1", "https://169.254.169.254/v1", "https://[fe80::1]/v1"),
        *("https://0.0.0.0/v1", "https://[::]/v1", "https://224.0.0.1/v1", "http://[::2]/v1"),
        *("http://localhost.evil.example/v1", "http://127.0.0.1.evil.example/v1", "http://127.1"),
        *("https://2852039166/v1", "https://0xA9FEA9FE/v1", "https://0251.0376.0251.0376/v1"),
        *("https://[::ffff:169.254.169.254]/v1", "https://hоst.example/v1", "https://ｈost/v1"),
        *("https://host:0/v1", "https://host:65536/v1", "https://host:x/v1", "https://ho st/v1"),
        *(" https://host/v1", "https://host/v1 ", "https://host/v1?a=b", "https://host/v1#a"),
        *("https://host\\@evil.example/v1", "https://-host/v1", "https://a..b/v1"),
    ),
    "EMBEDDING_MODEL": (
        " ",
        "two words",
        " m",
        "m ",
        "m\n",
        "m\x1b[31m",
        "ｍ",
        "m\u200b",
        "m" * 129,
    ),
    "EMBEDDING_DOCUMENT_PREFIX": ("a" * 1_001,),
    "EMBEDDING_QUESTION_PREFIX": ("a" * 1_001,),
    "EMBEDDING_TYPE_FIELD": (" ", "input type", "a=b", "ä", "a" * 65, "input", "1a"),
    **dict.fromkeys(
        ("EMBEDDING_DOCUMENT_TYPE", "EMBEDDING_QUESTION_TYPE"), (" ", "a b", "a=b", "a" * 65)
    ),
    "EMBEDDING_RATE_LIMIT_NAME": (" ", "a b", "a\n", "a/b", "ä", "a" * 65),
    **dict.fromkeys(
        ("EMBEDDING_PRICE_USD_PER_MILLION", "EMBED_CONFIRM_USD"),
        (" ", "-1", "1000001", "much", "nan", "inf", "1,5", "$1", "1_000", "１"),
    ),
    **dict.fromkeys(
        ("EMBED_BUDGET_USD_PER_DAY", "EMBED_BUDGET_USD_PER_MONTH"),
        (" ", "0", "-1", "1000001", "much", "nan", "inf", "1,5", "$1", "1_000", "１"),
    ),
    **dict.fromkeys(
        ("EMBED_BUDGET_TOKENS_PER_DAY", "EMBED_BUDGET_TOKENS_PER_MONTH"),
        (" ", "0", "-1", "100000000001", "many", "nan", "1.5", "1e6", "1_000", "１"),
    ),
    "EMBED_QUALITY_LEAVE_OUT": ("a\n", "\x1b[31m", "a" * 1001),
    **dict.fromkeys(
        ("EMBED_ENTITY_RELATIONS_TYPES", "EMBED_ENTITY_RELATIONS_NAMES"),
        (" ", ",", "A, b\\c", "A,\x1b[31m", "a" * 129),
    ),
    "EMBED_QUEUE": (" ", "Acme", "1st", "_a", "a-b", "a b", "a`b", "a\n", "ä", "a" * 32),
    "EMBED_ENTITY_TEMPLATE": (
        " ",
        "no names",
        "{",
        "{}",
        "}{a}",
        "{a}}",
        "{a{b}}",
        "{ a}",
        "{a\\b}",
    ),
    "EMBED_HISTORY_PATH": (" ", "a b", " a", "a ", "a\n"),
    "EMBED_HISTORY_FROM": (
        *(" ", "today", "20261118", "2026-13-01", "2026-02-30", "2025-12-31", "3000-01-01"),
        *("2026-11-18 ", "1763424000", "２026-11-18"),
    ),
    "EMBED_EMBEDDINGS_PATH": (" ", " a", "a ", "a\n", "a\x1b[31mb"),
}
HELD_BACK = ("https://host\\@evil.example/v1",)
"""Whatever has an @ in it may hold a password."""

ACCEPTED: dict[str, tuple[str, ...]] = {
    "NEO4J_URI": (
        *(
            "bolt://localhost",
            "neo4j://LOCALHOST:7687",
            "bolt://127.0.0.1:7687",
            "bolt://127.9.9.9",
        ),
        *("bolt://[::1]:7687", "bolt+s://db.example", "neo4j+ssc://10.0.0.7:7687"),
    ),
    "NEO4J_USERNAME": ("neo4j", "a b", "ünal"),
    "NEO4J_PASSWORD": ("p", "pass word", "pässword\n"),
    "NEO4J_DATABASE": ("neo4j", "my-graph.2"),
    "OPENAI_API_KEY": ("sk-x\n", "anything"),
    "OPENAI_BASE_URL": (
        *("https://provider.example", "https://provider.example:8443/v1/", "https://10.0.0.7/v1"),
        *("http://localhost:8000/v1", "http://127.0.0.1:8000", "http://[::1]:8000/v1"),
        *("https://my_provider/v1", "https://xn--hst-sna.example/v1"),
    ),
    "EMBEDDING_MODEL": ("text-embedding-3-large", "BAAI/bge-m3", "name:tag"),
    "EMBEDDING_DOCUMENT_PREFIX": ("search_document: ", "a" * 1_000),
    "EMBEDDING_QUESTION_PREFIX": ("search_query: ", "a" * 1_000),
    **dict.fromkeys(
        ("EMBEDDING_TYPE_FIELD", "EMBEDDING_DOCUMENT_TYPE", "EMBEDDING_QUESTION_TYPE"),
        ("input_type", "task", "retrieval.passage", "a" * 64),
    ),
    "EMBEDDING_RATE_LIMIT_NAME": ("default", "OpenAI.project-7", "a" * 64),
    **dict.fromkeys(
        ("EMBEDDING_PRICE_USD_PER_MILLION", "EMBED_CONFIRM_USD"), ("0", "0.02", "1000000")
    ),
    **dict.fromkeys(
        ("EMBED_BUDGET_USD_PER_DAY", "EMBED_BUDGET_USD_PER_MONTH"), ("0.000001", "5", "1000000")
    ),
    **dict.fromkeys(
        ("EMBED_BUDGET_TOKENS_PER_DAY", "EMBED_BUDGET_TOKENS_PER_MONTH"), ("1", "100000000000")
    ),
    "EMBED_QUALITY_LEAVE_OUT": ("MENTIONS", "MENTIONS, SAME AS", "é"),
    **dict.fromkeys(
        ("EMBED_ENTITY_RELATIONS_TYPES", "EMBED_ENTITY_RELATIONS_NAMES"),
        ("KNOWS", "KNOWS, WORKS AT", "é,`a"),
    ),
    "EMBED_QUEUE": ("default", "acme", "tenant_42", "a" * 31),
    "EMBED_ENTITY_TEMPLATE": (
        *("{title}", "{title}: {abstract}", "{{literal}} {a}", "{first name} {a.b} {título}"),
    ),
    "EMBED_HISTORY_PATH": ("history", "../history", "s3://bucket/folder"),
    "EMBED_HISTORY_FROM": ("2026-01-01", "2026-11-18", "2999-12-31"),
    "EMBED_EMBEDDINGS_PATH": ("embeddings.yaml", "../my embeddings.yaml"),
    "EMBED_JOB_HEARTBEAT_INTERVAL_MS": ("100", "1800000"),
    **dict.fromkeys(NAMES, ("Thing", "_x", *ODD_NAMES)),
    **CHOICES,
}
BESIDE: dict[str, dict[str, str]] = {
    "EMBEDDING_DIMENSIONS": {"EMBEDDING_MODEL": "of-any-length"},
    "EMBEDDING_PROVIDER": {"OPENAI_API_KEY": "k"},
    "EMBED_JOB_HEARTBEAT_INTERVAL_MS": {"EMBED_JOB_LOCK_DURATION_MS": "3600000"},
    "EMBEDDING_DOCUMENT_TYPE": {"EMBEDDING_TYPE_FIELD": "task"},
    "EMBEDDING_QUESTION_TYPE": {"EMBEDDING_TYPE_FIELD": "task"},
    "NEO4J_URI": {"NEO4J_PASSWORD": "p"},
}
"""What a good value needs beside it."""


def numbers_that_are_none(lowest: int, highest: int) -> tuple[str, ...]:
    wide = "".join(chr(ord(digit) + 0xFEE0) for digit in str(lowest))
    return (
        *(str(lowest - 1), str(highest + 1), "-1", "9" * 13, "1_4", wide, f" {lowest}"),
        *(f"{lowest} ", f"{lowest}\n", f"+{lowest}", f"{lowest}.0", "1e3", "0x10", "abc", "true"),
        *("nan", "null", "1,000", "--1", "٣", "²"),
    )


REFUSED = {
    **{name: numbers_that_are_none(*bounds) for name, bounds in NUMBERS.items()},
    **{name: ("none", "True", "MOCK", " ", *(f"{c} " for c in v)) for name, v in CHOICES.items()},
    # An empty value is the default.
    # No variable can hold a NUL.
    **dict.fromkeys(NAMES, tuple(name for name in REFUSED_NAMES[1:] if "\0" not in name)),
    **TEXTS,
}


@pytest.fixture(autouse=True)
def _only_what_is_required(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RETENTION, "14")


def load(monkeypatch: pytest.MonkeyPatch, environment: Mapping[str, str]) -> Settings:
    with monkeypatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        return load_settings()


def refusal(monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    with pytest.raises(ConfigurationError) as caught:
        load(monkeypatch, environment)
    return str(caught.value)


def allowed_by(variable: str) -> str:
    extra: Any = variables()[variable].json_schema_extra
    return extra["allowed"]


def test_every_setting_has_its_bad_and_its_good_values() -> None:
    assert REFUSED.keys() == variables().keys()
    assert NUMBERS.keys() | ACCEPTED.keys() == variables().keys()


@pytest.mark.parametrize("variable", REFUSED)
def test_a_bad_value_is_refused_with_variable_value_what_is_allowed_and_what_to_do(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    for value in REFUSED[variable]:
        message = refusal(monkeypatch, **{variable: value})

        assert message.startswith("One setting is wrong:\n"), value
        assert message.endswith(NEXT_STEP), value
        if is_secret(variables()[variable]):
            assert f"{variable} (value not shown) must be {allowed_by(variable)}." in message
        elif value in HELD_BACK:
            assert f"{variable} (value not shown) holds a user or password" in message
        else:
            shown = value if len(value) <= 200 else f"{value[:200]}…"
            assert f"{variable} is {shown!r}; it must be {allowed_by(variable)}." in message


@pytest.mark.parametrize("variable", list(variables()))
def test_a_good_value_is_accepted(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    bounds = NUMBERS.get(variable, ())
    values = ACCEPTED.get(variable) or [str(bound) for bound in bounds]
    assert values
    beside = BESIDE.get(variable, {})
    loaded = [load(monkeypatch, {**beside, variable: value}).model_dump() for value in values]
    # They arrive: none is taken for another.
    assert all(one != other for one, other in combinations(loaded, 2))


@pytest.mark.parametrize("variable", list(variables()))
def test_an_empty_value_is_a_missing_one(monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
    if variables()[variable].is_required():
        assert f"{variable} is not set; it must be" in refusal(monkeypatch, **{variable: ""})
        monkeypatch.delenv(variable)
        assert f"{variable} is not set; it must be" in refusal(monkeypatch)
    else:
        assert load(monkeypatch, {variable: ""}) == load(monkeypatch, {})


def test_everything_that_is_wrong_is_said_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    everything = {name: values[-1] for name, values in REFUSED.items()}

    message = refusal(monkeypatch, **everything)

    assert message.startswith(f"{len(variables())} settings are wrong:\n")
    assert [name for name in variables() if name not in message] == []


TIMES = [name for name in variables() if name.endswith(("_MS", "_INTERVAL"))]


@pytest.mark.parametrize("variable", TIMES)
def test_60_where_60000_was_meant_is_asked_about(
    monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    try:
        said = "\n".join(warnings(load(monkeypatch, {variable: "60"})))
    except ConfigurationError as error:
        said = str(error)

    assert variable in said
    assert "Did you mean 60000 (60 seconds)?" in said


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NEO4J_URI", "bolt://neo4j:hunter2@host:7687"),
        ("NEO4J_URI", "http://neo4j:hunter2@host"),
        ("NEO4J_URI", "bolt://hunter2@host"),
        ("OPENAI_BASE_URL", "https://me:hunter2@host/v1"),
        ("OPENAI_BASE_URL", "https://host/v1?api_key=hunter2"),
        ("OPENAI_BASE_URL", "https://host/v1?token=hunter2&x=y"),
        ("EMBED_HISTORY_PATH", "s3://key:hunter2@bucket"),
        ("EMBED_JOB_RETENTION_DAYS", "sk-hunter2hunter2"),
        ("EMBEDDING_PROVIDER", "sk-proj-hunter2"),
        ("NEO4J_DATABASE", "password=hunter2"),
        ("OPENAI_API_KEY", "hunter2 with blanks"),
        ("EMBEDDING_MODEL", "Bearer hunter2hunter2"),
    ],
)
def test_i19_a_secret_in_any_variable_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, variable: str, value: str
) -> None:
    message = refusal(monkeypatch, **{variable: value})

    assert variable in message
    assert "hunter2" not in message


@pytest.mark.parametrize(("scheme", "is_said"), [("neo4j+s", False), ("bolt+ssc", True)])
def test_tls_that_verifies_nothing_is_said(
    monkeypatch: pytest.MonkeyPatch, scheme: str, is_said: bool
) -> None:
    settings = load(
        monkeypatch, {"NEO4J_URI": f"{scheme}://db.example", "NEO4J_PASSWORD": "hunter2"}
    )

    said = "\n".join(warnings(settings))

    assert ("NEO4J_URI has +ssc: it encrypts, but does not verify" in said) == is_said
    assert "hunter2" not in said


@pytest.mark.parametrize(
    "uri",
    [
        *("bolt://db.example", "neo4j://db.example:7687", "bolt://10.0.0.7", "bolt://0.0.0.0"),
        *("bolt://[::2]:7687", "bolt://localhost.example", "bolt://127.0.0.1.example"),
        *("bolt://2130706433", "bolt://127.1"),
    ],
)
def test_bolt_in_the_clear_to_another_machine_must_be_allowed_explicitly(
    monkeypatch: pytest.MonkeyPatch, uri: str
) -> None:
    own = {"NEO4J_URI": uri, "NEO4J_PASSWORD": "hunter2"}

    message = refusal(monkeypatch, **own)
    allowed = load(monkeypatch, {**own, "EMBED_ALLOW_PLAINTEXT_BOLT": "true"})

    assert f"NEO4J_URI is {uri!r}, another machine without TLS" in message
    assert f"use {uri.partition('://')[0]}+s://" in message
    assert "set EMBED_ALLOW_PLAINTEXT_BOLT=true" in message
    assert "+ssc:// for a certificate of your own; it encrypts, but does not verify" in message
    assert "hunter2" not in message
    assert allowed.neo4j_uri == uri


@pytest.mark.parametrize(
    "field", ["label", "key", "version", "valid_to", "order", "vector", "type"]
)
def test_no_hostile_name_gets_into_a_shape(field: str) -> None:
    for name in REFUSED_NAMES:
        with pytest.raises(ConfigurationError, match="allowed is a name of at most 128 printable"):
            EntityShape(**cast("Any", {field: name}))
