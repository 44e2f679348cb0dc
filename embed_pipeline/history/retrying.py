"""From failures to the Dagster job that tries them again."""

import json
from typing import Final

import pandas as pd

RETRY_CONFIG: Final = """\
ops:
  retry_jobs:
    config:
      preview: true
      {condition}: {values}
"""


def retry_config(rows: pd.DataFrame | pd.Series, *, only_examples: bool = False) -> str:
    """The run config, as YAML, with which ``retry_failed_jobs`` previews a retry of failures.

    Means all failed jobs of the rows' categories, because the job knows categories and no
    fingerprints; or only the example of each row, to see first whether it works now.

    Args:
        rows: one or more rows of ``failures``.
        only_examples: retry the example jobs and nothing else.

    Raises:
        ValueError: there are no rows, which would mean every job.
    """
    chosen = rows.to_frame().T if isinstance(rows, pd.Series) else rows
    if chosen.empty:
        raise ValueError("no failures are given; choose at least one row of history.failures()")
    condition, column = ("job_ids", "example_job") if only_examples else ("categories", "category")
    # A list of JSON is one of YAML, whatever an id looks like.
    values = json.dumps(sorted({str(value) for value in chosen[column]}))
    return RETRY_CONFIG.format(condition=condition, values=values)
