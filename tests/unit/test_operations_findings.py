"""What the doctor says of the deployment as a whole."""

import pytest

from embed_pipeline.operations.findings import PLACES, Mark, examine_places
from embed_pipeline.settings import load_settings
from tests.repository.deploy.files import DOCKER, KUBERNETES, load
from tests.support.project import ROOT


@pytest.mark.parametrize(("standing", "warnings"), [(0, 0), (PLACES - 1, 0), (PLACES, 1)])
def test_more_on_standby_than_have_places_is_a_warning(
    monkeypatch: pytest.MonkeyPatch, standing: int, warnings: int
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    own = load_settings()
    stays = own.model_copy(update={"standby": "true"})

    found = examine_places([own, *[stays] * standing])

    assert [finding.mark for finding in found] == [Mark.WARNING] * warnings
    assert all(f"need {PLACES + 1} drains at once" in finding.detail for finding in found)


def test_there_are_as_many_places_as_the_doctor_thinks() -> None:
    chart = load(KUBERNETES / "values.yaml")["concurrency"]["runs"]["tagConcurrencyLimits"]
    own, docker = (
        load(folder / "dagster.yaml")["concurrency"]["runs"]["tag_concurrency_limits"]
        for folder in (ROOT, DOCKER)
    )

    assert [limit["limit"] for limit in (*own, *docker, *chart)] == [PLACES] * 3
