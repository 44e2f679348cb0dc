"""What a model wants before a document is sent with every text and piece, and is no part of it."""

import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.pieces import Pieces
from embed_pipeline.domain.profiles import OPENAI
from embed_pipeline.embedding.openai_batch import OpenAIBatches
from tests.support.batch_harness import Batching
from tests.support.batch_server import BatchServer, batch_server
from tests.support.drain_harness import DrainUnderTest

NOMIC, E5 = "search_document: ", "passage: "
PARAGRAPHS = [f"Paragraph {n} tells of topic {n}, which no other mentions." for n in range(12)]
LONG = "\n\n".join(PARAGRAPHS)


async def sent(queue: DrainUnderTest, shape: EntityShape, *texts: str) -> list[str]:
    """Scan and drain with this shape; says what the provider gets."""
    queue = replace(queue, shape=shape)
    await queue.install()
    for number, text in enumerate(texts):
        await queue.put_entity(f"e{number}", text)
    queue.provider.requests.clear()
    await queue.reconcile()
    report = await queue.drained()
    assert report.failed.total() == 0
    return [text for request in queue.provider.requests for text in request["input"]]


async def test_m123_every_piece_is_sent_with_the_prefix_and_stored_without(
    queue: DrainUnderTest,
) -> None:
    shape = EntityShape(pieces=Pieces(tokens=32), prefix=NOMIC)

    got = await sent(queue, shape, LONG)

    rows = await queue.run("MATCH (p:EmbedChunk) RETURN p.text AS text ORDER BY p.index")
    stored = [row["text"] for row in rows]
    assert got == [NOMIC + text for text in stored]
    assert "".join(stored).endswith(LONG)
    assert len(stored) > 5


async def test_m123_another_prefix_makes_every_vector_and_piece_anew(
    queue: DrainUnderTest,
) -> None:
    pieces = Pieces(tokens=32)
    before = await sent(queue, EntityShape(pieces=pieces, prefix=NOMIC), LONG)

    same = await sent(queue, EntityShape(pieces=pieces, prefix=NOMIC))
    other = await sent(queue, EntityShape(pieces=pieces, prefix=E5))

    assert same == []
    assert "".join(x.removeprefix(E5) for x in other) == "".join(
        x.removeprefix(NOMIC) for x in before
    )
    assert all(text.startswith(E5) for text in other)


async def test_m123_another_type_makes_every_vector_and_piece_anew(queue: DrainUnderTest) -> None:
    shape = EntityShape(pieces=Pieces(tokens=32), sent_as="input_type=passage")
    before = await sent(queue, shape, LONG)

    same = await sent(queue, shape)
    other = await sent(queue, replace(shape, sent_as="input_type=document"))

    assert same == []
    assert other == before
    assert len(before) > 5


async def test_m123_a_text_of_nothing_is_not_sent_for_its_prefix(queue: DrainUnderTest) -> None:
    shape = EntityShape(template="{observations}", prefix=NOMIC)

    got = await sent(queue, shape, "a text", " ")

    assert got == [f"{NOMIC}a text"]


@pytest.fixture
def api() -> Iterator[BatchServer]:
    with batch_server() as server:
        yield server


async def test_m126_the_lines_of_a_batch_have_the_prefix(
    queue: DrainUnderTest, api: BatchServer
) -> None:
    shape = EntityShape(template="{name}", prefix=E5)
    queue = replace(queue, shape=shape)
    await queue.install()
    await queue.given(2)
    batching = Batching(queue.driver, queue.database, api.base_url, shape=shape)

    await batching.submit()

    [file] = [content for name, content in api.files.items() if name.startswith("file_in")]
    texts = [json.loads(line)["body"]["input"] for line in file.splitlines()]
    assert [text.startswith(E5) for [text] in texts] == [True, True]


def test_m126_the_lines_of_a_batch_say_the_type_of_documents() -> None:
    profile = replace(OPENAI, type_field="task", document_type="passage", question_type="query")
    batches = OpenAIBatches(
        model="m", dimensions=4, api_key="k", base_url="http://127.0.0.1:9/v1", profile=profile
    )

    line = json.loads(batches.line("1", PreparedText("a text", tokens=2)))

    assert line["body"]["task"] == "passage"
