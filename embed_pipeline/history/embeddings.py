"""The same table of several embeddings."""

import inspect
from collections.abc import Callable
from typing import Any

import pandas as pd

from embed_pipeline.settings.embeddings import chosen_embedding, load_embeddings

EMBEDDING = "embedding"


def of_each(table: Callable[..., pd.DataFrame], **options: Any) -> pd.DataFrame:
    """A table of all embeddings of the project, with a column that says whose a row is.

    Args:
        table: a function of ``history``.
        options: for the function.

    Raises:
        EmbedPipelineError: what the function raises; a setting is wrong.
    """
    frames: list[pd.DataFrame] = []
    for settings in load_embeddings():
        frame = table(**meaning(table, settings.queue), **options)
        frame.insert(0, EMBEDDING, settings.queue)
        frames.append(frame)
    # What is empty says nothing about the types of its columns.
    filled = [frame for frame in frames if len(frame)] or frames[:1]
    return pd.concat(filled).sort_index(kind="stable")


def meaning(table: Callable[..., pd.DataFrame], embedding: str | None) -> dict[str, Any]:
    """Parameter of ``history`` functions: which embedding; empty if not given."""
    if embedding is None:
        return {}
    if "queue" in inspect.signature(table).parameters:
        return {"queue": embedding}
    return {"settings": chosen_embedding(embedding)}
