"""The secrets: named in what Dagster stores and shows, never written there."""

import dagster as dg
import pytest
from dagster._core.remote_representation.external_data import RepositorySnap
from dagster._serdes import serialize_value

from embed_pipeline.defs.resources import resources
from embed_pipeline.defs.site import Site
from embed_pipeline.settings import load_settings
from tests.defs.conftest import fresh_definitions
from tests.support.run_config_schema import leaves

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
    repository = fresh_definitions().get_repository_def()

    told = serialize_value(RepositorySnap.from_def(repository))

    assert "NEO4J_" in told
    assert "OPENAI_" in told
    assert PASSWORD not in told
    assert KEY not in told


def test_the_resources_themselves_do_not_show_them() -> None:
    for resource in resources(Site((load_settings(),))).values():
        said = f"{resource!r} {resource}"
        assert PASSWORD not in said
        assert KEY not in said


def test_no_field_of_any_resource_can_be_set_from_a_run_config(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = list(fresh_definitions().resolve_all_job_defs())

    settable = [
        f"{job.name}: {leaf}" for job in jobs for leaf in leaves(job) if leaf.path[0] == "resources"
    ]

    assert settable == []
    assert len(jobs) > 11


@pytest.mark.parametrize("given", [{"password": "x"}, {"password": {"env": "NEO4J_PASSWORD"}}])
def test_a_password_in_a_run_config_is_refused(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, object]
) -> None:
    job = fresh_definitions().resolve_job_def("pause_queue")

    with pytest.raises(dg.DagsterInvalidConfigError, match='unexpected config entry "password"'):
        dg.validate_run_config(job, {"resources": {"embed_neo4j": {"config": given}}})


def test_the_settings_in_effect_do_not_show_them() -> None:
    settings = load_settings()

    assert PASSWORD not in f"{settings!r} {settings} {settings.model_dump()}"
    assert KEY not in f"{settings!r} {settings} {settings.model_dump()}"
