"""A cut-over where the pieces of texts are nodes: each side has its own, and an index of them."""

from typing import Any

import pytest

from embed_pipeline.domain.cutover import Phase
from embed_pipeline.domain.errors import CutoverError
from embed_pipeline.domain.pieces import Pieces
from embed_pipeline.embedding.tokens import prepare_in_pieces
from embed_pipeline.operations import cutover, wiring
from embed_pipeline.operations.following import live_settings
from embed_pipeline.store.connection import Driver
from tests.acceptance.cutover.conftest import (
    ENTITIES,
    NEAR,
    NEW,
    NEW_LENGTH,
    OLD,
    OLD_LENGTH,
    Deployment,
    text_of,
    vector_of,
)
from tests.acceptance.cutover.test_cutover import AT_ONCE, indexes_of
from tests.acceptance.cutover.test_killed import lives_of

TOKENS = 32
LONG = "\n\n".join(f"Paragraph {n} tells of topic {n}, which no other mentions." for n in range(4))
PASSAGES: Any = """
MATCH (e:Entity {name: $name})<-[:FROM_DOCUMENT]-(piece:EmbedChunk:Chunk)
RETURN piece.model AS model, piece.text AS text, size(piece.embedding) AS length
ORDER BY model, piece.index
"""


def pieces_of(number: int, said: str, tokens: int = TOKENS) -> list[str]:
    prepared = prepare_in_pieces(text_of(number, said), Pieces(tokens=tokens), max_tokens=8191)
    return [piece.text for piece in prepared.inputs]


async def passages(deployment: Deployment, number: int) -> dict[tuple[str, int], list[str]]:
    """The texts of an entity's pieces, by model and length of the vectors."""
    found: dict[tuple[str, int], list[str]] = {}
    for row in await deployment.graph.run(PASSAGES, name=f"e{number}"):
        found.setdefault((row["model"], row["length"]), []).append(row["text"])
    return found


async def assert_found(deployment: Deployment, number: int, said: str, place: int = 0) -> None:
    """A search finds a passage of an entity through what is live."""
    passage = pieces_of(number, said)[place]
    [hit] = await deployment.search(passage)
    assert (hit.uid, hit.passage, hit.score > NEAR) == (f"e{number}", passage, True)


@pytest.fixture
async def in_pieces(empty: Deployment) -> Deployment:
    """A deployment whose pieces are nodes, with the texts of all entities embedded."""
    empty.set(EMBED_PIECES="nodes", EMBED_PIECES_TOKENS=str(TOKENS))
    await wiring.install_schema(empty.driver, empty.settings, change_model=True)
    await empty.put(ENTITIES, text=LONG)
    await empty.embed()
    return empty


async def test_m103_m121_both_sides_keep_their_own_pieces_fresh_and_finish_removes_one(
    in_pieces: Deployment,
) -> None:
    old, new = (OLD, OLD_LENGTH), (NEW, NEW_LENGTH)
    assert await passages(in_pieces, 3) == {old: pieces_of(3, LONG)}
    await assert_found(in_pieces, 3, LONG)

    await in_pieces.gone()
    both = {old: pieces_of(3, LONG), new: pieces_of(3, LONG)}
    assert await passages(in_pieces, 3) == both
    await assert_found(in_pieces, 3, LONG)

    in_pieces.provider.requests.clear()
    edited = LONG.replace("topic 2", "something else")
    await in_pieces.put(1, text=edited, first=3)
    await in_pieces.embed()
    asked = [text for request in in_pieces.provider.requests for text in request["input"]]
    new_pieces = set(pieces_of(3, edited)) - set(pieces_of(3, LONG))
    assert sorted(asked) == sorted(2 * list(new_pieces))
    assert await passages(in_pieces, 3) == {old: pieces_of(3, edited), new: pieces_of(3, edited)}
    await assert_found(in_pieces, 3, edited)

    await cutover.rollback(in_pieces.driver, in_pieces.settings)
    await assert_found(in_pieces, 3, edited)
    await cutover.go(in_pieces.driver, in_pieces.settings)
    await cutover.finish(in_pieces.driver, in_pieces.settings, grace=AT_ONCE)

    assert await passages(in_pieces, 3) == {new: pieces_of(3, edited)}
    [row] = await in_pieces.graph.run(
        "MATCH (p:EmbedChunk) WHERE p.model <> $model OR p:EmbedPiece RETURN count(p) AS left",
        model=NEW,
    )
    assert row["left"] == 0
    assert not [name for name in await indexes_of(in_pieces) if name == "chunk_embeddings"]
    await assert_found(in_pieces, 3, edited)
    [report] = await in_pieces.embed()
    assert report.completed == 0


@pytest.mark.proof
async def test_m104_who_searches_the_pieces_of_the_former_side_holds_up_finish(
    in_pieces: Deployment,
) -> None:
    await in_pieces.gone()
    alias, database = await in_pieces.alias(), in_pieces.graph.queue.database
    asked = vector_of(pieces_of(2, LONG)[0], OLD, OLD_LENGTH)
    use = None
    # The server counts some seconds behind.
    while use is None or use.at <= alias.since:
        await by_name(in_pieces, asked)
        use, _ = await cutover.read_use(database, alias.former())

    with pytest.raises(CutoverError, match=r"index chunk_embeddings was read .* of the pieces of"):
        await cutover.finish(in_pieces.driver, in_pieces.settings)


async def by_name(deployment: Deployment, vector: list[float]) -> list[dict[str, Any]]:
    """Ask as neo4j-graphrag does, which knows the name of an index."""
    return await deployment.graph.run(
        "CALL db.index.vector.queryNodes('chunk_embeddings', 50, $vector) YIELD node, score"
        " MATCH (node)-[:FROM_DOCUMENT]->(e) RETURN e.name AS name, node.text AS text, score"
        " ORDER BY score DESC",
        vector=vector,
    )


@pytest.mark.proof
async def test_m104_m105_the_index_of_the_pieces_keeps_its_name_too_whenever_it_is_killed(
    in_pieces: Deployment,
) -> None:
    await in_pieces.gone()
    settings = in_pieces.settings

    async def finish(driver: Driver) -> None:
        is_told = await in_pieces.phase() is not Phase.FINISHING
        await cutover.finish(driver, settings, grace=AT_ONCE, keep_index_name=is_told)

    passage = pieces_of(1, LONG)[0]
    ended = await lives_of(in_pieces, finish, {Phase.LIVE, Phase.FINISHING}, asked=passage)

    assert ended > 4
    hit = (await by_name(in_pieces, vector_of(passage, NEW, NEW_LENGTH)))[0]
    assert (hit["name"], hit["text"], hit["score"] > NEAR) == ("e1", passage, True)
    # The next one removes an index that has not the name of its queue.
    await in_pieces.start(model="model-c", dimensions=4)
    await in_pieces.embed()
    await cutover.go(in_pieces.driver, in_pieces.settings)
    await cutover.finish(in_pieces.driver, in_pieces.settings, grace=AT_ONCE)
    rows = await in_pieces.graph.run(
        "SHOW VECTOR INDEXES YIELD name, properties WHERE properties = ['embedding']"
        " AND name STARTS WITH 'chunk' RETURN name"
    )
    assert [row["name"].startswith("chunk_embeddings_cut_") for row in rows] == [True]
    await assert_found(in_pieces, 3, LONG)


@pytest.mark.proof
@pytest.mark.parametrize("tokens", [None, 16])
async def test_r25_pieces_of_another_size_are_another_side_of_the_same_model(
    in_pieces: Deployment, tokens: int | None
) -> None:
    """From pieces of 32 tokens to smaller ones, or to none."""
    if tokens is None:
        in_pieces.set(EMBED_PIECES="mean")
    else:
        in_pieces.set(EMBED_PIECES_TOKENS=str(tokens))
    await in_pieces.start(model=OLD, dimensions=OLD_LENGTH)
    await in_pieces.embed()

    alias = await in_pieces.alias()
    live = await live_settings(in_pieces.driver, in_pieces.settings)
    await assert_found(in_pieces, 3, LONG)
    await cutover.go(in_pieces.driver, in_pieces.settings)
    await cutover.finish(in_pieces.driver, in_pieces.settings, grace=AT_ONCE)

    assert (alias.other is not None, live.pieces_tokens) == (True, TOKENS)
    left = await passages(in_pieces, 3)
    wanted = {} if tokens is None else {(OLD, OLD_LENGTH): pieces_of(3, LONG, tokens)}
    assert left == wanted
    passage = pieces_of(3, LONG, tokens)[0] if tokens else None
    [hit] = await in_pieces.search(passage or text_of(3, LONG))
    assert (hit.uid, hit.passage, hit.score > NEAR) == ("e3", passage, True)
