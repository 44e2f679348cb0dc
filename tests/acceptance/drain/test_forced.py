"""Embedding again what fits: the provider is asked, whatever vectors the graph has."""

from datetime import timedelta
from typing import Any

import pytest

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.judging import Forced
from embed_pipeline.operations.scan import Scan
from tests.support.drain_harness import DrainUnderTest
from tests.support.queue_harness import MODEL, VECTOR


def asked(queue: DrainUnderTest) -> list[str]:
    """The entities whose texts went to the provider, in order."""
    texts = [text for request in queue.provider.requests for text in request["input"]]
    return sorted(text.split("\n")[0].removeprefix("Name: ") for text in texts)


async def given_embedded(queue: DrainUnderTest) -> None:
    await queue.given(3)
    await queue.run("MATCH (e:Entity {name: 'e2'}) SET e.entityType = 'other'")
    await queue.drained()
    queue.provider.requests.clear()


async def forced(queue: DrainUnderTest, which: Forced, **options: Any) -> Scan:
    scan = Scan.begin(queue.queue.reconciler(MODEL), force=which)
    await scan.go_on(**options)
    return scan


async def test_m86_a_forced_enqueue_asks_the_provider_again(queue: DrainUnderTest) -> None:
    await given_embedded(queue)

    await queue.admin.enqueue([NewJob("e0", MODEL, force=True), NewJob("e1", MODEL)])
    report = await queue.drained()

    assert asked(queue) == ["e0"]
    assert report.cache_hits == 0


@pytest.mark.parametrize(
    ("which", "again"),
    [
        (Forced(), ["e0", "e1", "e2"]),
        (Forced(entity_type="other"), ["e2"]),
        (Forced(model=MODEL), ["e0", "e1", "e2"]),
        (Forced(model="another"), []),
        (Forced(older_than=timedelta(0)), ["e0", "e1", "e2"]),
        (Forced(older_than=timedelta(days=1)), []),
    ],
    ids=str,
)
async def test_m86_a_forced_scan_embeds_those_again_that_it_means(
    queue: DrainUnderTest, which: Forced, again: list[str]
) -> None:
    await given_embedded(queue)

    preview = await forced(queue, which, dry_run=True)
    await queue.drained()
    looked = asked(queue)
    scan = await forced(queue, which)
    await queue.drained()

    assert (looked, asked(queue)) == ([], again)
    assert preview.forced == scan.forced == len(again)


async def test_m86_entities_of_one_text_are_asked_for_each(queue: DrainUnderTest) -> None:
    """The vector of a twin is no way round the provider."""
    await queue.run("UNWIND ['a', 'b'] AS name CREATE (:Entity {name: name, version: 1})")
    shared = queue.config.hash_of({"name": "a"})
    await queue.admin.enqueue([NewJob("a", MODEL)])
    await queue.drained()
    await queue.run(
        "MATCH (e:Entity {name: 'b'}) SET e.embedding_hash = $hash, e.embedding_model = $model",
        hash=shared,
        model=MODEL,
    )
    queue.provider.requests.clear()

    await queue.admin.enqueue([NewJob("a", MODEL, force=True)])
    await queue.drained()

    assert asked(queue) == ["a"]


async def test_m86_a_forced_job_that_is_pending_or_fails_stays_forced(
    queue: DrainUnderTest,
) -> None:
    await given_embedded(queue)
    await queue.run("MATCH (e:Entity {name: 'e0'}) REMOVE e.embedding_hash")
    await queue.reconcile()

    await queue.admin.enqueue([NewJob("e0", MODEL, force=True)])
    batch = await queue.lease(limit=1)
    await queue.jobs.release([item.lease for item in batch.jobs])
    await queue.drained()

    assert asked(queue) == ["e0"]


async def test_m86_what_is_forced_while_it_is_embedded_is_embedded_once_more(
    queue: DrainUnderTest,
) -> None:
    await queue.given(1)
    [item] = (await queue.lease(limit=1)).jobs
    [loaded] = await queue.jobs.load([item.lease])
    await queue.admin.enqueue([NewJob("e0", MODEL, force=True)])
    digest = queue.config.hash_of(loaded.properties)
    await queue.complete(item.lease, vector=VECTOR, hashes=[digest])

    await queue.reconcile()
    await queue.drained()
    settled = await queue.reconcile()

    assert asked(queue) == ["e0"]
    assert settled.enqueued == {}


async def test_m86_a_changed_text_ends_the_force(queue: DrainUnderTest) -> None:
    await given_embedded(queue)
    await queue.admin.enqueue([NewJob("e0", MODEL, force=True)])
    await queue.drained()
    await queue.run(
        "MATCH (e:Entity {name: 'e0'}) SET e.observations = ['changed']"
        " CREATE (:Entity {name: 'twin'})"
    )
    await queue.reconcile()

    [lease] = [x.lease for x in (await queue.lease()).jobs if x.lease.entity_uid == "e0"]

    assert await queue.jobs.find_forced([lease]) == set()


async def test_m86_who_forced_a_scan_is_recorded_once(queue: DrainUnderTest) -> None:
    await given_embedded(queue)
    queue.act_as(Operator("alice"))

    await forced(queue, Forced(entity_type="test"), page_size=1)

    [entry] = await queue.actions()
    assert (entry.action, entry.count, entry.filter) == ("force", 2, "type: test")
    assert entry.is_complete
