"""Closed days as files, in a folder and elsewhere."""

import uuid
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from embed_pipeline.domain.errors import HistoryError
from embed_pipeline.history.archive import Archive
from embed_pipeline.history.frames import empty, frame_of, joined
from embed_pipeline.history.records import Record

DAY = date(2026, 11, 16)
NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


@pytest.fixture(params=["folder", "file://", "memory://"])
def archive(request: pytest.FixtureRequest, tmp_path: Path) -> Archive:
    address = {
        "folder": str(tmp_path / "a" / "history"),
        "file://": f"file://{tmp_path}/history",
        "memory://": f"memory://{uuid.uuid4().hex}/history",
    }
    return Archive.at(address[request.param])


def rows(**values: Any) -> pd.DataFrame:
    return frame_of([Record(NOON, values)])


def files(archive: Archive) -> list[str]:
    return sorted(path.name for path in (archive.root / "drains").iterdir())


def test_a_day_comes_back_as_it_went(archive: Archive) -> None:
    day = joined([rows(n=1, share=0.1, ending="done"), rows(n=2, share=0.2)])

    archive.write("drains", DAY, day)

    pd.testing.assert_frame_equal(archive.read("drains", DAY), day)
    assert archive.days("drains") == [DAY]
    assert archive.days("coverage") == []


def test_a_day_without_rows_comes_back_too(archive: Archive) -> None:
    archive.write("drains", DAY, empty())

    pd.testing.assert_frame_equal(archive.read("drains", DAY), empty())


def test_the_same_rows_give_the_same_bytes(archive: Archive) -> None:
    file = archive.root / "drains" / f"{DAY}.parquet"

    archive.write("drains", DAY, rows(n=1, ending="done"))
    before = file.read_bytes()
    archive.write("drains", DAY, rows(n=1, ending="done"))

    assert file.read_bytes() == before
    assert files(archive) == [f"{DAY}.parquet"]


def test_days_are_in_order_and_other_files_are_none(archive: Archive) -> None:
    for day in (DAY, date(2026, 1, 2), date(2025, 12, 31)):
        archive.write("drains", day, rows(n=1))
    for name in (
        f".{DAY}.parquet.0ab1",
        "2026-11-17.parquet.half",
        "20261117.parquet",
        "notes.txt",
    ):
        (archive.root / "drains" / name).write_bytes(b"half")

    assert archive.days("drains") == [date(2025, 12, 31), date(2026, 1, 2), DAY]


def test_a_write_that_breaks_off_leaves_the_old_day_and_nothing_else(
    archive: Archive, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive.write("drains", DAY, rows(n=1))

    def is_full(*_: object) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(type(archive.root), "rename", is_full)
    with pytest.raises(OSError, match="no space left"):
        archive.write("drains", DAY, rows(n=2))

    assert archive.read("drains", DAY)["n"].tolist() == [1]
    assert files(archive) == [f"{DAY}.parquet"]


@pytest.mark.parametrize("left", [0, 4, 200])
def test_a_damaged_file_is_named_with_what_to_do(archive: Archive, left: int) -> None:
    archive.write("drains", DAY, rows(n=1))
    file = archive.root / "drains" / f"{DAY}.parquet"
    file.write_bytes(file.read_bytes()[:left])

    with pytest.raises(HistoryError, match=r"2026-11-16\.parquet cannot be read .* materialize"):
        archive.read("drains", DAY)
