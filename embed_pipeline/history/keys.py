"""How the assets of a queue are called in Dagster."""

import dagster as dg

from embed_pipeline.domain.queue_name import DEFAULT_QUEUE


def asset_key(name: str, queue: str) -> dg.AssetKey:
    """The key of an asset of a queue.

    Queues that share a Dagster instance must not share assets: their histories would be one. The
    first queue has the plain names.
    """
    return dg.AssetKey(name if queue == DEFAULT_QUEUE else [queue, name])
