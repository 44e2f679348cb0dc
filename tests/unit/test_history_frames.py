"""From records to tidy frames."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pandas as pd
import pytest

from embed_pipeline.history import frames
from embed_pipeline.history.frames import empty, frame_of, joined, resampled
from embed_pipeline.history.records import Record

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)


def at(minutes: float, **values: Any) -> Record:
    return Record(NOON + timedelta(minutes=minutes), values)


def test_a_row_per_record_and_a_column_per_value() -> None:
    frame = frame_of([at(0, pending=1, age=0.5), at(1, pending=2, age=1.5)])

    assert list(frame.columns) == ["pending", "age"]
    assert frame["pending"].tolist() == [1, 2]
    assert str(frame.index.dtype) == "datetime64[us, UTC]"
    assert frame.index.name == "at"
    assert frame.index[1].to_pydatetime() == NOON + timedelta(minutes=1)


def test_no_records_give_an_index_in_utc_all_the_same() -> None:
    frame = frame_of([])

    assert len(frame) == 0
    assert str(frame.index.dtype) == "datetime64[us, UTC]"


def test_chunks_leave_no_seam(monkeypatch: pytest.MonkeyPatch) -> None:
    records = [at(minute, pending=minute) for minute in range(10)]
    whole = frame_of(records)

    monkeypatch.setattr(frames, "CHUNK", 3)

    pd.testing.assert_frame_equal(frame_of(records), whole)


def test_a_new_figure_is_empty_before_it_was_there() -> None:
    old, new = frame_of([at(0, pending=1)]), frame_of([at(1, pending=2, fenced=5)])

    frame = joined([old, new])

    assert frame["pending"].tolist() == [1, 2]
    assert frame["fenced"].isna().tolist() == [True, False]
    assert frame["fenced"].iloc[1] == 5


def test_texts_stay_texts_where_one_is_missing() -> None:
    frame = joined([frame_of([at(0, n=1)]), frame_of([at(1, n=1, ending="done"), at(2, n=1)])])

    assert frame["ending"].iloc[1] == "done"
    assert frame["ending"].isna().tolist() == [True, False, True]


def test_the_order_is_by_time_and_rows_of_one_moment_all_stay() -> None:
    frame = joined([frame_of([at(5, n=3)]), frame_of([at(0, n=1), at(0, n=2)]), empty()])

    assert frame["n"].tolist() == [1, 2, 3]


def test_intervals_sum_up_each_figure_by_what_it_means() -> None:
    rows = [
        at(
            0,
            pending=10,
            tokens_total=5,
            completed_in_window=1,
            oldest_pending_seconds=9.0,
            is_paused=1,
            expired_leases=4,
        ),
        at(
            1,
            pending=20,
            tokens_total=7,
            completed_in_window=2,
            oldest_pending_seconds=3.0,
            is_paused=0,
            expired_leases=0,
        ),
    ]

    [row] = resampled(frame_of(rows), "1h").to_dict("records")

    assert row == {
        "pending": 15,
        "tokens_total": 7,
        "completed_in_window": 3,
        "oldest_pending_seconds": 9.0,
        "is_paused": 1,
        "expired_leases": 4,
    }


def test_an_interval_without_readings_is_empty_and_not_zero() -> None:
    frame = frame_of([at(0, a=1, b_total=1, c_in_window=1, is_d=1), at(120, a=1, b_total=1)])

    found = resampled(frame, "1h")

    assert len(found) == 3
    assert found.iloc[1].isna().all()


def test_texts_are_left_out_of_intervals() -> None:
    assert list(resampled(frame_of([at(0, model="m", pending=1)]), "1D").columns) == ["pending"]


@pytest.mark.parametrize("frame", [empty(), frame_of([at(0, pending=1)])], ids=["empty", "filled"])
def test_an_unknown_interval_is_refused_with_examples(frame: pd.DataFrame) -> None:
    with pytest.raises(ValueError, match=r"resample is 'hourly'; .* such as 5min, 1h"):
        resampled(frame, "hourly")
