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

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embed_pipeline.history import capacity
    from embed_pipeline.history.embeddings import of_each
    from embed_pipeline.history.failed import failures
    from embed_pipeline.history.retrying import retry_config
    from embed_pipeline.history.similar import similarities
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

# No function has the name of its module: whoever imported the module first would hide it.
_HOME_OF = {
    "coverage": "tables",
    "drains": "tables",
    "failures": "failed",
    "of_each": "embeddings",
    "queue_metrics": "tables",
    "retry_config": "retrying",
    "similarities": "similar",
}


if not TYPE_CHECKING:  # which would take every name for one of these

    def __getattr__(name: str) -> Any:
        """Load pandas where a table is asked for, and not in the code location."""
        if name == "capacity":
            return import_module(f"{__name__}.capacity")
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
