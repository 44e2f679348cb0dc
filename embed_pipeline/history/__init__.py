"""The history of the queue as pandas DataFrames, in one call each.

::

    from embed_pipeline import history

    history.queue_metrics(since="7d", resample="1h")
    history.drains(since="24h")
    history.coverage()
    history.failures()
    history.similarities()
    history.of_each(history.drains, since="24h")

All of them only read. What was exported to Parquet and what still stands in Dagster's event log
are joined; ``docs/history.md`` lists every column with its unit.
"""

from embed_pipeline.history import capacity
from embed_pipeline.history.embeddings import of_each
from embed_pipeline.history.failures import failures
from embed_pipeline.history.retrying import retry_config
from embed_pipeline.history.similarities import similarities
from embed_pipeline.history.tables import coverage, drains, queue_metrics

__all__ = [
    "capacity",
    "coverage",
    "drains",
    "failures",
    "of_each",
    "queue_metrics",
    "retry_config",
    "similarities",
]
