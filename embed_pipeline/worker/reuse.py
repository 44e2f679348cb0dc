"""What is not asked for, because the graph has its vector."""

from collections.abc import Sequence

from embed_pipeline.domain.job import Lease
from embed_pipeline.domain.ports import Embedder, JobStore
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.vector import Vector
from embed_pipeline.worker.batching import Item, piece_hash

Reused = tuple[list[Item], list[Completion]]
"""What is left to ask for, and what can be completed without."""


async def reuse_vectors(store: JobStore, embedder: Embedder, items: Sequence[Item]) -> Reused:
    """Copy the vectors of texts that were embedded before."""
    vectors = await store.find_vectors(
        [item.text_hash for item in items], model=embedder.model, dimensions=embedder.dimensions
    )
    known = [item for item in items if item.text_hash in vectors]
    if known:
        forced = await store.find_forced([item.leased.lease for item in known])
        known = [item for item in known if item.leased.lease not in forced]
    copied = {id(item) for item in known}
    asked = [item for item in items if id(item) not in copied]
    return asked, [copy_of(item, vectors[item.text_hash]) for item in known]


async def reuse_pieces(store: JobStore, embedder: Embedder, items: Sequence[Item]) -> Reused:
    """The same for pieces that are nodes: only unknown pieces are sent."""
    vectors = await store.find_pieces(
        [piece_hash(piece) for item in items for piece in item.text.inputs],
        model=embedder.model,
        dimensions=embedder.dimensions,
    )
    forced: set[Lease] = set()
    if vectors:
        forced = await store.find_forced([item.leased.lease for item in items])
    asked: list[Item] = []
    known: list[Completion] = []
    for item in items:
        left = item.without({} if item.leased.lease in forced else vectors)
        row = None if left.text.pieces else left.completion(())
        if isinstance(row, Completion):
            known.append(row)
        else:
            # Vectors that add up to nothing are asked for again.
            asked.append(left if row is None else item.without({}))
    return asked, known


def copy_of(item: Item, vector: Vector | None) -> Completion:
    """The completion of a text that was not sent."""
    return Completion(item.leased.lease, vector, item.text_hash, tokens=0, pieces=item.inputs)
