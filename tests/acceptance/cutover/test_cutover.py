"""From one model to another and back: gates, flips, and what is removed at the end."""

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from embed_pipeline.domain.cutover import Alias, Gate, Phase
from embed_pipeline.domain.errors import CutoverError
from embed_pipeline.operations import cutover, wiring
from embed_pipeline.operations.following import wanted_settings
from embed_pipeline.store.alias import Neo4jAlias
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

AT_ONCE = timedelta(0)
NEAR_IN_A_CIRCLE = """
MATCH (e:Entity)
WITH e, toFloat(substring(e.name, 1)) * 2 * pi() / 100 AS angle
CALL db.create.setNodeVectorProperty(
  e, $name, [cos(angle), sin(angle)] + [i IN range(3, $length) | 0.0])
"""
"""Vectors whose neighbours are those of the numbers in the names."""


async def properties_of(deployment: Deployment) -> set[str]:
    rows = await deployment.graph.run(
        "MATCH (e:Entity) UNWIND keys(e) AS key RETURN DISTINCT key AS key"
    )
    return {row["key"] for row in rows if row["key"].startswith("embedding")}


async def indexes_of(deployment: Deployment) -> set[str]:
    rows = await deployment.graph.run("SHOW INDEXES YIELD name RETURN name")
    return {row["name"] for row in rows}


async def test_m99_start_shows_its_plan_and_fills_the_candidate_beside_the_live_one(
    deployment: Deployment,
) -> None:
    settings = deployment.settings
    wanted = wanted_settings(settings, model=NEW, dimensions=NEW_LENGTH)
    plan = await cutover.plan(deployment.driver, settings, wanted)
    assert await cutover.read(deployment.driver, settings) is None
    assert (plan.cost.texts, plan.cost.requests) == (ENTITIES, 1)

    await deployment.start()

    alias = await deployment.alias()
    assert (alias.live.model, alias.phase) == (OLD, Phase.FILLING)
    assert (alias.live.queue, alias.live.index) == ("default", "entity_embeddings")
    assert [hit.uid for hit in await deployment.search(text_of(3))] == ["e3"]
    live, beside = await deployment.embed()
    assert (live.completed, beside.completed) == (0, ENTITIES)
    assert alias.other is not None
    assert {"embedding", alias.other.vector} <= await properties_of(deployment)
    assert {"entity_embeddings", alias.other.index} <= await indexes_of(deployment)


async def test_m99_both_sides_share_the_rate_limit(deployment: Deployment) -> None:
    await deployment.start()
    await deployment.embed()

    [row] = await deployment.graph.run("MATCH (l:EmbedLimiter) RETURN count(l) AS limiters")

    assert row["limiters"] == 1


async def test_m100_go_refuses_while_a_gate_is_red_and_names_it(deployment: Deployment) -> None:
    await deployment.start()

    with pytest.raises(CutoverError, match=r"1 of 5 gates are red: cutover_coverage: 0\.00 %"):
        await cutover.go(deployment.driver, deployment.settings)

    assert (await deployment.alias()).epoch == 1
    await deployment.embed()
    alias, gates = await cutover.go(deployment.driver, deployment.settings)
    assert (alias.live.model, alias.phase, alias.epoch) == (NEW, Phase.LIVE, 2)
    assert [gate.passed for gate in gates] == [True] * 5
    assert gates[0].figures["embedded"] == ENTITIES


@pytest.mark.proof
async def test_m100_mock_vectors_and_a_missing_index_do_not_go_live(
    deployment: Deployment,
) -> None:
    await deployment.start(provider="mock", dimensions=NEW_LENGTH)
    await deployment.embed()
    with pytest.raises(CutoverError, match=f"cutover_no_mock: {ENTITIES} vectors"):
        await cutover.go(deployment.driver, deployment.settings)

    alias = await deployment.alias()
    assert alias.other is not None
    await deployment.graph.run("DROP INDEX $name", name=alias.other.index)
    with pytest.raises(CutoverError, match="cutover_index: the schema lacks"):
        await cutover.go(deployment.driver, deployment.settings)


@pytest.mark.proof
async def test_m100_vectors_of_other_lengths_do_not_go_live(deployment: Deployment) -> None:
    alias = await deployment.filled()
    assert alias.other is not None
    await deployment.graph.run(
        "MATCH (e:Entity {name: 'e1'}) CALL db.create.setNodeVectorProperty(e, $name, [1.0, 2.0])",
        name=alias.other.vector,
    )

    gates = await cutover.gates(deployment.driver, deployment.settings, alias)

    red = {gate.name: gate.detail for gate in gates if not gate.passed}
    assert red["cutover_lengths"] == f"1 of 2 instead of {NEW_LENGTH}"


async def test_m100_vectors_that_follow_the_graph_worse_do_not_go_live(
    deployment: Deployment,
) -> None:
    """Joined entities are neighbours in the vectors of the live side, and of the other if told."""
    await deployment.put(100)
    await deployment.embed()
    alias = await deployment.filled()
    assert alias.other is not None
    await deployment.graph.run(
        "UNWIND range(0, 99) AS n UNWIND [1, 2] AS step MATCH (a:Entity {name: 'e' + n})"
        " MATCH (b:Entity {name: 'e' + ((n + step) % 100)}) CREATE (a)-[:NEAR]->(b)"
    )
    await deployment.graph.run(NEAR_IN_A_CIRCLE, name=alias.live.vector, length=OLD_LENGTH)

    red = await quality_gate_of(deployment, alias)
    await deployment.graph.run(NEAR_IN_A_CIRCLE, name=alias.other.vector, length=NEW_LENGTH)
    green = await quality_gate_of(deployment, alias)

    assert not red.passed
    assert red.figures["auc_live"] > 0.9
    assert red.figures["auc"] < 0.7
    assert "the live one" in red.detail
    assert (green.passed, green.figures["auc"]) == (True, green.figures["auc_live"])
    assert green.figures["edges"] == 200


async def quality_gate_of(deployment: Deployment, alias: Alias) -> Gate:
    gates = await cutover.gates(deployment.driver, deployment.settings, alias)
    [gate] = [gate for gate in gates if gate.name == "cutover_quality"]
    return gate


async def test_m100_the_users_own_questions_are_a_gate(
    deployment: Deployment, tmp_path: Path
) -> None:
    alias = await deployment.filled()
    file = tmp_path / "questions.yaml"
    file.write_text("".join(f"{text_of(i)!r}: e{i}\n" for i in (1, 2)).replace("'", '"'))
    *_, gate = await cutover.gates(deployment.driver, deployment.settings, alias)
    assert (gate.name, gate.passed) == ("cutover_questions", True)
    assert gate.figures == {"recall": 1.0, "recall_live": 1.0, "questions": 2}

    # The live model knows this entity by a text that the candidate has never seen.
    assert alias.other is not None
    await deployment.graph.run(
        "MATCH (e:Entity {name: 'e1'}) SET e[$name] = null", name=alias.other.vector
    )
    with pytest.raises(CutoverError, match=r"recall@5 of 2 questions: 0\.500, the live one 1\.000"):
        await cutover.go(deployment.driver, deployment.settings)


async def test_m101_m102_search_follows_the_flip_and_the_rollback(deployment: Deployment) -> None:
    alias = await deployment.gone()
    assert await deployment.live() == (NEW, NEW_LENGTH)
    [hit] = await deployment.search(text_of(5))
    assert (hit.uid, hit.score > NEAR) == ("e5", True)
    assert deployment.provider.requests[-1]["model"] == NEW

    await cutover.rollback(deployment.driver, deployment.settings)

    assert await deployment.live() == (OLD, OLD_LENGTH)
    [hit] = await deployment.search(text_of(5))
    assert (hit.uid, hit.score > NEAR) == ("e5", True)
    assert deployment.provider.requests[-1]["model"] == OLD
    assert (await deployment.alias()).epoch == alias.epoch + 1
    again, _ = await cutover.go(deployment.driver, deployment.settings)
    assert again.live.model == NEW


async def test_m103_both_stay_fresh_until_finish(deployment: Deployment) -> None:
    await deployment.gone()
    await deployment.put(1, text="changed", first=4)

    reports = await deployment.embed()

    assert [report.completed for report in reports] == [1, 1]
    [hit] = await deployment.search(text_of(4, "changed"))
    assert (hit.uid, hit.score > NEAR) == ("e4", True)
    await cutover.rollback(deployment.driver, deployment.settings)
    [hit] = await deployment.search(text_of(4, "changed"))
    assert (hit.uid, hit.score > NEAR) == ("e4", True)


async def test_m104_finish_removes_what_is_not_live_only_after_the_grace(
    deployment: Deployment,
) -> None:
    await deployment.gone()
    with pytest.raises(CutoverError, match="index entity_embeddings was live 0 s ago"):
        await cutover.finish(deployment.driver, deployment.settings)

    former = wiring.queue_on(deployment.driver, deployment.settings).batches
    await former.begin("b", model=OLD, holder="w")
    assert await former.write("b", holder="w", status="submitted", jobs=7)
    with pytest.raises(CutoverError, match="7 of its jobs are in batches at the provider"):
        await cutover.finish(deployment.driver, deployment.settings, grace=AT_ONCE)
    assert await former.write("b", holder="w", status="collected")

    removed, entities = await cutover.finish(deployment.driver, deployment.settings, grace=AT_ONCE)
    assert await former.every() == []

    alias = await deployment.alias()
    assert (removed.model, entities, alias.other, alias.phase) == (OLD, ENTITIES, None, None)
    assert await properties_of(deployment) == {
        alias.live.vector,
        *(f"{alias.live.vector}_{mark}" for mark in ("model", "hash", "version", "job")),
        *(f"{alias.live.vector}_{mark}" for mark in ("print", "at")),
    }
    assert "entity_embeddings" not in await indexes_of(deployment)
    [hit] = await deployment.search(text_of(7))
    assert (hit.uid, hit.score > NEAR) == ("e7", True)
    [report] = await deployment.embed()
    assert report.completed == 0


async def test_m104_the_live_index_can_keep_the_name_of_the_former_one(
    deployment: Deployment,
) -> None:
    before = await deployment.gone()

    removed, entities = await cutover.finish(
        deployment.driver, deployment.settings, keep_index_name=True
    )

    alias = await deployment.alias()
    assert (removed.model, entities, alias.phase, alias.takes) == (OLD, ENTITIES, None, None)
    assert (alias.live.index, alias.live.vector) == ("entity_embeddings", before.live.vector)
    assert alias.epoch == before.epoch + 1
    assert before.live.index not in await indexes_of(deployment)
    [hit, *_] = await by_name(deployment, "entity_embeddings", text_of(7))
    assert (hit["name"], hit["score"] > NEAR) == ("e7", True)
    [hit] = await deployment.search(text_of(7))
    assert (hit.uid, hit.score > NEAR) == ("e7", True)


@pytest.mark.proof
async def test_a_rolled_back_cutover_needs_no_name_and_a_half_finished_one_takes_none(
    deployment: Deployment,
) -> None:
    await deployment.gone()
    rolled_back = await cutover.rollback(deployment.driver, deployment.settings)
    alias = Neo4jAlias(deployment.graph.queue.database, "default")
    seen = await alias.finishing(rolled_back)
    with pytest.raises(CutoverError, match="finished without --keep-index-name"):
        await cutover.finish(deployment.driver, deployment.settings, keep_index_name=True)

    await cutover.finish(deployment.driver, deployment.settings)

    assert (await deployment.alias()).live == seen.live
    assert "entity_embeddings" in await indexes_of(deployment)


async def by_name(deployment: Deployment, index: str, text: str) -> list[dict[str, Any]]:
    """Ask as a client does that embeds its own questions and knows one name."""
    return await deployment.graph.run(
        # For one hit alone an index looks so briefly that it may miss the nearest.
        "CALL db.index.vector.queryNodes($index, $most, $vector) YIELD node, score"
        " RETURN node.name AS name, score ORDER BY score DESC",
        index=index,
        most=ENTITIES,
        vector=vector_of(text, NEW, NEW_LENGTH),
    )


@pytest.mark.proof
@pytest.mark.proof
async def test_m104_a_candidate_that_was_never_live_is_given_up_only_by_force(
    deployment: Deployment,
) -> None:
    alias = await deployment.filled()
    before = await indexes_of(deployment)
    with pytest.raises(CutoverError, match="has never been live"):
        await cutover.finish(deployment.driver, deployment.settings, grace=AT_ONCE)

    removed, entities = await cutover.finish(deployment.driver, deployment.settings, force=True)

    assert (removed, entities) == (alias.other, ENTITIES)
    [kept] = await deployment.graph.run("MATCH (j:EmbedJob) RETURN count(j) AS jobs")
    assert kept["jobs"] == ENTITIES
    left = await indexes_of(deployment)
    assert removed.index in before
    assert not [name for name in left if removed.queue in name or name == removed.index]
    rows = await deployment.graph.run(
        "MATCH (n) WHERE n.name = $queue OR any(l IN labels(n) WHERE l ENDS WITH $queue)"
        " RETURN labels(n) AS labels",
        queue=removed.queue,
    )
    assert [row["labels"] for row in rows if "EmbedAudit" not in row["labels"][0]] == []
    await deployment.start()
    assert await deployment.phase() is Phase.FILLING


async def test_a_flip_that_was_committed_is_not_repeated(deployment: Deployment) -> None:
    seen = await deployment.filled()
    alias = Neo4jAlias(deployment.graph.queue.database, "default")

    first = await alias.flip(seen, Phase.LIVE)
    again = await alias.flip(seen, Phase.LIVE)

    assert first == again
    with pytest.raises(CutoverError, match="it has been changed meanwhile"):
        await alias.flip(seen, Phase.ROLLED_BACK)


async def test_a_second_cutover_waits_for_the_first(deployment: Deployment) -> None:
    await deployment.start()
    await deployment.start()
    with pytest.raises(CutoverError, match="end it first: embed-pipeline cutover finish"):
        await deployment.start(model="model-c", dimensions=4)
    with pytest.raises(CutoverError, match="is live already"):
        await deployment.start(model=OLD, dimensions=OLD_LENGTH)


@pytest.mark.proof
@pytest.mark.proof
async def test_a_third_model_and_the_first_one_again(deployment: Deployment) -> None:
    for model, length in ((NEW, NEW_LENGTH), ("model-c", 4), (OLD, OLD_LENGTH)):
        await deployment.start(model=model, dimensions=length)
        await deployment.embed()
        await cutover.go(deployment.driver, deployment.settings)
        await cutover.finish(deployment.driver, deployment.settings, grace=AT_ONCE)

        assert await deployment.live() == (model, length)
        [hit] = await deployment.search(text_of(2))
        assert (hit.uid, hit.score > NEAR) == ("e2", True)
