"""From failures to what Dagster accepts."""

from typing import Any

import dagster as dg
import pandas as pd
import pytest
import yaml

from embed_pipeline.defs.build import build_location
from embed_pipeline.history import retry_config
from tests.support.sites import settings_of

FAILURES = pd.DataFrame(
    [
        {"category": "TRANSIENT", "example_job": "a: #1"},
        {"category": "CRITICAL", "example_job": "b"},
        {"category": "TRANSIENT", "example_job": "c"},
    ]
)


def accepted(text: str) -> dict[str, Any]:
    """What Dagster makes of it."""
    job = build_location(settings_of()).resolve_job_def("retry_failed_jobs")
    checked = dg.validate_run_config(job, yaml.safe_load(text))
    return checked["ops"]["retry_jobs"]["config"]


def test_means_the_categories_and_is_a_preview() -> None:
    config = accepted(retry_config(FAILURES))

    assert config["categories"] == ["CRITICAL", "TRANSIENT"]
    assert config["job_ids"] == []
    assert config["preview"] is True


def test_means_only_the_examples_where_that_is_said() -> None:
    config = accepted(retry_config(FAILURES, only_examples=True))

    assert config["job_ids"] == ["a: #1", "b", "c"]
    assert config["categories"] == []


def test_takes_a_single_row() -> None:
    assert accepted(retry_config(FAILURES.iloc[1]))["categories"] == ["CRITICAL"]


def test_no_rows_do_not_become_every_job() -> None:
    with pytest.raises(ValueError, match="choose at least one row"):
        retry_config(FAILURES[:0])
