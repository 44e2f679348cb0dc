"""What is read: it must be there already, and belong together."""

import shutil
from pathlib import Path

import dagster as dg
import pytest

from embed_pipeline import history
from embed_pipeline.domain.errors import HistoryError
from embed_pipeline.history.archive import Archive
from embed_pipeline.history.sources import archive_for, has_storage, is_own
from tests.support.generated_history import by_day, insert, make_home, readings

NOWHERE = "memory://nowhere"


@pytest.fixture(scope="module")
def used_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home of a Dagster that has made three readings."""
    home = make_home(tmp_path_factory.mktemp("deployment") / "dagster")
    insert(home, readings(3))
    return home


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project that has never run."""
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    return tmp_path


def everything_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*"))


@pytest.mark.parametrize("name", ["queue_metrics", "drains", "coverage"])
def test_without_dagster_nothing_is_made_and_the_message_says_what_to_do(
    folder: Path, name: str
) -> None:
    with pytest.raises(HistoryError, match=r"holds no history of Dagster; start Dagster there"):
        getattr(history, name)()

    assert everything_in(folder) == []


def test_a_folder_that_only_has_a_configuration_is_left_as_it_is(folder: Path) -> None:
    (folder / "dagster.yaml").write_text("telemetry:\n  enabled: false\n")

    with pytest.raises(HistoryError, match=f"{folder} holds no history"):
        history.queue_metrics(instance=folder, archive=NOWHERE)

    assert everything_in(folder) == [folder / "dagster.yaml"]


def test_reading_changes_nothing_in_the_home(used_home: Path) -> None:
    before = everything_in(used_home)
    content = (used_home / "history" / "runs" / "index.db").read_bytes()

    assert len(history.queue_metrics(instance=str(used_home), archive=NOWHERE)) == 3

    assert everything_in(used_home) == before
    assert (used_home / "history" / "runs" / "index.db").read_bytes() == content


def test_a_folder_may_name_a_storage_elsewhere(used_home: Path, folder: Path) -> None:
    analyst = folder / "analyst"
    analyst.mkdir()
    configuration = f"storage:\n  sqlite:\n    base_dir: {used_home}\n"
    (analyst / "dagster.yaml").write_text(configuration)

    assert len(history.queue_metrics(instance=analyst, archive=NOWHERE)) == 3

    assert everything_in(analyst) == [analyst / "dagster.yaml"]


def test_a_database_of_a_server_counts_as_there(folder: Path) -> None:
    (folder / "dagster.yaml").write_text(
        "storage:\n  postgres:\n    postgres_url: postgresql://analyst@db/dagster\n"
    )

    assert has_storage(folder)
    assert everything_in(folder) == [folder / "dagster.yaml"]


def test_the_variable_leads_to_the_instance(
    used_home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DAGSTER_HOME", str(used_home))

    assert len(history.queue_metrics()) == 3


def test_an_open_instance_stays_open(used_home: Path) -> None:
    with dg.DagsterInstance.from_config(str(used_home)) as instance:
        first = history.queue_metrics(instance=instance, archive=NOWHERE)
        second = history.queue_metrics(instance=instance, archive=NOWHERE)

    assert len(first) == len(second) == 3


def test_exported_days_are_enough(folder: Path) -> None:
    archive = Archive.at(str(folder / ".embed_pipeline" / "history"))
    [(day, rows)] = by_day(readings(5))
    archive.write("queue_metrics", day, rows)

    assert len(history.queue_metrics()) == 5
    assert not (folder / ".embed_pipeline" / "dagster").exists()


def test_the_days_of_this_project_are_not_taken_for_those_of_another(
    used_home: Path, folder: Path
) -> None:
    archive = Archive.at(str(folder / ".embed_pipeline" / "history"))
    [(day, rows)] = by_day(readings(5))
    archive.write("queue_metrics", day, rows)

    assert len(history.queue_metrics(instance=used_home)) == 3


@pytest.mark.parametrize("is_named", [True, False])
def test_it_is_read_in_any_folder_without_any_setting(
    used_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_named: bool
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("EMBED_JOB_RETENTION_DAYS", raising=False)
    monkeypatch.setenv("DAGSTER_HOME", str(tmp_path if is_named else used_home))

    assert len(history.queue_metrics(instance=used_home if is_named else None)) == 3
    assert everything_in(tmp_path) == []


def test_m96_every_embedding_is_read_with_a_column_that_says_whose_a_row_is(
    used_home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = folder / "two.yaml"
    named.write_text(
        "embeddings:\n  - {name: default}\n  - {name: people, label: Person, vector: person}\n"
    )
    monkeypatch.setenv("EMBED_EMBEDDINGS_PATH", str(named))
    with dg.DagsterInstance.from_config(str(used_home)) as instance:
        key = dg.AssetKey(["people", "embed_queue_metrics"])
        instance.report_runless_asset_event(dg.AssetMaterialization(key, metadata={"pending": 7}))

    found = history.of_each(history.queue_metrics, instance=used_home)

    assert found["embedding"].tolist() == ["default"] * 3 + ["people"]
    assert found["pending"].tolist()[-1] == 7
    assert found.index.is_monotonic_increasing


def test_days_whose_place_was_named_are_joined_to_any_instance(
    used_home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_HISTORY_PATH", "memory://named")

    assert archive_for(used_home, None, queue="default") == Archive.at("memory://named")
    assert archive_for(used_home, "memory://given", queue="default") == Archive.at("memory://given")


def test_an_instance_in_memory_is_nobodys(folder: Path) -> None:
    with dg.DagsterInstance.ephemeral() as instance:
        assert not is_own(instance)


def test_the_own_home_is_known_by_any_of_its_names(used_home: Path, folder: Path) -> None:
    home = folder / ".embed_pipeline" / "dagster"
    shutil.copytree(used_home, home)

    assert is_own(None)
    assert is_own(str(home))
    assert is_own(folder / ".embed_pipeline" / "." / "dagster")
    with dg.DagsterInstance.from_config(str(home)) as instance:
        assert is_own(instance)
    assert not is_own(used_home)
