"""What an edit of a long text costs where pieces are nodes, and how long a switch of many takes.

``python -m benchmarks.pieces`` puts another paragraph at eleven places of a text of 400, one at a
time, and counts the pieces that are new. Then it stores an entity with ``--pieces`` pieces of
``--dimensions`` numbers in a server of its own, and another text in place of the first one.
"""

import argparse
import asyncio
import platform
import random
import sys
import time
from collections import Counter
from pydoc_data.topics import topics
from typing import Final

from benchmarks.contestants import LEASE
from benchmarks.machine import size
from benchmarks.site import MODEL
from embed_pipeline.devserver.temporary import temporary_server
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import Lease, NewJob
from embed_pipeline.domain.pieces import HASHED_AS, Passage, Pieces
from embed_pipeline.domain.results import Completion
from embed_pipeline.domain.text import hash_of_entity, recipe_of, render_for, text_hash
from embed_pipeline.domain.vector import vector_of
from embed_pipeline.embedding.tokens import prepare_in_pieces
from embed_pipeline.store import schema
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import Connection, open_driver
from embed_pipeline.store.pieces import stage_pieces
from embed_pipeline.store.queue import Queue, open_queue

PARAGRAPHS: Final = 400
PLACES: Final = 11
SHAPE: Final = EntityShape(template="{text}", pieces=Pieces())
ANOTHER: Final = (
    "A paragraph that nobody has written before, about nothing that the others tell of."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pieces", type=int, default=10_000)
    parser.add_argument("--dimensions", type=int, default=384)
    chosen = parser.parse_args()
    sys.stdout.write(f"{size()}, Python {platform.python_version()}\n{edits()}\n")
    with temporary_server() as server:
        connection = Connection(server.uri, server.username, server.password, server.database)
        asyncio.run(switches(connection, chosen.pieces, chosen.dimensions))


def edits() -> str:
    """How many pieces are new after another paragraph at one of some places."""
    whole = [part for name in sorted(topics) for part in topics[name].split("\n\n")]
    paragraphs = [part for part in whole if len(part) > 300][:PARAGRAPHS]
    before = _pieces(paragraphs)
    new: list[int] = []
    for number in range(PLACES):
        place = number * len(paragraphs) // (PLACES - 1)
        after = _pieces([*paragraphs[:place], ANOTHER, *paragraphs[place:]])
        new.append((after - before).total())
    return (
        f"{len(paragraphs)} paragraphs in {before.total()} pieces; another one at {PLACES} places: "
        f"{min(new)} to {max(new)} pieces are new, {sum(new) / len(new):.1f} on average"
    )


def _pieces(paragraphs: list[str]) -> Counter[str]:
    prepared = prepare_in_pieces("\n\n".join(paragraphs), Pieces(), max_tokens=8_191)
    return Counter(piece.text for piece in prepared.inputs)


async def switches(connection: Connection, pieces: int, dimensions: int) -> None:
    """Store one text in so many pieces, and another one in their place."""
    config = QueueConfig(shape=SHAPE, dimensions=dimensions)
    async with open_driver(connection) as driver:
        await schema.install(
            driver, database=connection.database, shape=SHAPE, dimensions=dimensions
        )
        queue = open_queue(driver, database=connection.database, config=config)
        for text in ("the first", "another text"):
            await driver.execute_query(
                "MERGE (e:Entity {name: 'e'}) SET e.version = 1, e.text = $text",
                {"text": text},
                database_=connection.database,
            )
            await queue.admin.enqueue([NewJob("e", MODEL, force=True)])
            [leased] = (
                await queue.jobs.lease(owner="o", model=MODEL, limit=1, duration=LEASE)
            ).jobs
            await _stored(queue, leased.lease, text, pieces, dimensions)


async def _stored(queue: Queue, lease: Lease, text: str, pieces: int, dimensions: int) -> None:
    dice = random.Random(text)
    words = [f"{text} {number}" for number in range(pieces)]
    vectors = [vector_of([dice.gauss() for _ in range(dimensions)]) for _ in words]
    passages = tuple(
        Passage(0, said, text_hash(said, recipe=HASHED_AS), vector)
        for said, vector in zip(words, vectors, strict=True)
    )
    digest = hash_of_entity({"text": text}, text, render=render_for(SHAPE), recipe=recipe_of(SHAPE))
    row = Completion(lease, vectors[0], digest, pieces=pieces, passages=passages)
    began = time.perf_counter()
    await stage_pieces(queue.database, queue.config, row)
    staged = time.perf_counter()
    [outcome] = await queue.jobs.complete([row])
    ended = time.perf_counter()
    sys.stdout.write(
        f"{pieces:,} pieces of {dimensions} numbers, {text}: {staged - began:.0f} s for the parts, "
        f"{ended - staged:.0f} s for the switch ({outcome.value})\n"
    )


if __name__ == "__main__":
    main()
