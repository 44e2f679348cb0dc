"""The secrets: named in what Dagster stores and shows, never written there."""

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

from embed_pipeline.defs.resources import resources
from embed_pipeline.settings import load_settings
from tests.defs.conftest import fresh_definitions

PASSWORD = "correct-horse-battery"
KEY = "sk-staple-of-the-tests"


@pytest.fixture(autouse=True)
def secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {
        "NEO4J_URI": "bolt://127.0.0.1:9",
        "NEO4J_PASSWORD": PASSWORD,
        "OPENAI_API_KEY": KEY,
        "EMBED_JOB_RETENTION_DAYS": "14",
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


def test_what_the_web_server_is_told_names_the_variables_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    repository = fresh_definitions(monkeypatch).get_repository_def()

    told = serialize_value(RepositorySnap.from_def(repository))

    assert "NEO4J_PASSWORD" in told
    assert "OPENAI_API_KEY" in told
    assert PASSWORD not in told
    assert KEY not in told


def test_the_resources_themselves_do_not_hold_them() -> None:
    found = resources()

    for resource in found.values():
        said = f"{resource!r} {resource} {vars(resource)} {dict(resource)}"
        assert PASSWORD not in said
        assert KEY not in said
    assert "NEO4J_PASSWORD" in repr(found["neo4j"].password)
    assert "OPENAI_API_KEY" in repr(found["embedder"].api_key)


def test_the_settings_in_effect_do_not_show_them() -> None:
    settings = load_settings()

    assert PASSWORD not in f"{settings!r} {settings} {settings.model_dump()}"
    assert KEY not in f"{settings!r} {settings} {settings.model_dump()}"


def test_a_variable_that_is_not_there_is_left_to_the_settings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY")

    embedder = resources()["embedder"]

    assert not isinstance(embedder.api_key, dg.EnvVar)
