"""Notebooks go on where there is nothing to read."""

import pandas as pd
import pytest

from embed_pipeline import history
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.history.notebook import by_span, plot, rate_limits, read


def test_a_wrong_setting_is_a_sentence_and_an_empty_table(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "3")

    found = read(history.drains, since="7d", columns=["seconds"])

    assert found.empty
    assert list(found) == ["seconds"]
    assert "EMBED_JOB_RETENTION_DAYS is '3'" in capsys.readouterr().out


def test_says_how_much_was_read(capsys: pytest.CaptureFixture[str]) -> None:
    def drains() -> pd.DataFrame:
        return pd.DataFrame({"seconds": [1.0, 2.0]})

    assert len(read(drains)) == 2
    assert capsys.readouterr().out == "drains: 2 rows.\n"


def test_a_mistake_of_the_analyst_stays_an_error() -> None:
    with pytest.raises(ValueError, match="is no time"):
        read(history.drains, since="yesterday")


def test_the_rate_limit_is_that_of_the_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBEDDING_RATE_LIMIT_TOKENS", "7")

    assert rate_limits() == RateLimits(requests=7)


def test_without_settings_the_default_rate_limit_is_assumed_and_said(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert rate_limits() == RateLimits()
    assert "The default rate limit is assumed" in capsys.readouterr().out


@pytest.mark.parametrize("frame", [pd.DataFrame(), pd.DataFrame({"age": [None]}, dtype=float)])
def test_nothing_to_draw_is_a_sentence(
    frame: pd.DataFrame, capsys: pytest.CaptureFixture[str]
) -> None:
    plot(frame, "age", title="Oldest job", unit="minutes")

    assert capsys.readouterr().out == "Oldest job: nothing to draw yet.\n"


@pytest.mark.parametrize(
    ("hours", "rule"), [(0.3, "1min"), (10, "5min"), (7 * 24, "1h"), (90 * 24, "1D")]
)
def test_the_interval_fits_the_time_that_was_read(
    hours: float, rule: str, capsys: pytest.CaptureFixture[str]
) -> None:
    index = pd.DatetimeIndex(["2026-11-01", "2026-11-01"], tz="UTC", name="at")
    index += pd.to_timedelta([0, hours], unit="h")
    frame = pd.DataFrame({"pending": [1, 3]}, index=index)

    found = by_span(frame)

    assert capsys.readouterr().out == f"One row per {rule}.\n"
    assert len(found) > 1
    assert len(by_span(frame, "1000D")) == 1
    assert by_span(frame[:0]).empty
