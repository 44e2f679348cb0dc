"""How near joined entities are, and how near others: what the quality of the vectors rests on."""

from collections.abc import Sequence
from typing import Final

import pandas as pd

from embed_pipeline.domain.quality import Edge, Sample
from embed_pipeline.operations.blocking import finish
from embed_pipeline.operations.following import opened_live
from embed_pipeline.operations.measuring import cosines_of
from embed_pipeline.settings import Settings
from embed_pipeline.settings.embeddings import chosen_embedding
from embed_pipeline.store.quality import sample_edges

COLUMNS: Final = {"cosine": "float64", "is_joined": "bool", "type": "object"}


def similarities(*, settings: Settings | None = None) -> pd.DataFrame:
    """A fresh sample of edges and of pairs without one, with the cosine of their stored vectors.

    Read from Neo4j, which must run; embeds nothing, keeps nothing.

    Raises:
        EmbedPipelineError: a setting is wrong, or Neo4j does not answer.
    """
    settings = settings or chosen_embedding(None)

    async def work() -> Sample:
        async with opened_live(settings) as (queue, live):
            return await sample_edges(queue, live.model, left_out=live.quality_left_out)

    sample = finish(work())
    rows = [
        *_rows(sample, sample.edges, is_joined=True),
        *_rows(sample, sample.non_edges, is_joined=False),
    ]
    return pd.DataFrame(rows, columns=list(COLUMNS)).astype(COLUMNS)


def _rows(
    sample: Sample, pairs: Sequence[Edge], *, is_joined: bool
) -> list[tuple[float, bool, str | None]]:
    cosines = cosines_of(sample.vectors, pairs)
    return [
        (cosine, is_joined, pair.type or None) for pair, cosine in zip(pairs, cosines, strict=True)
    ]
