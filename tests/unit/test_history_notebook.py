"""Notebooks go on where there is nothing to read."""

import pandas as pd
import pytest

from embed_pipeline import history
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.history.notebook import plot, rate_limits, read


def test_a_wrong_setting_is_a_sentence_and_an_empty_table(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = read(history.drains, since="7d", columns=["seconds"])

    assert found.empty
    assert list(found) == ["seconds"]
    assert "EMBED_JOB_RETENTION_DAYS is not set" in capsys.readouterr().out


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
