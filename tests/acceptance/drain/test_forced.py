"""Embedding again what fits: the provider is asked, whatever vectors the graph has."""

import asyncio
import re
from datetime import timedelta
from typing import Any, Final

import pytest
from click.testing import Result
from typer.testing import CliRunner

from embed_pipeline.cli.app import app
from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.judging import Forced
from embed_pipeline.domain.vector import print_of, vector_of
from embed_pipeline.operations.scan import Scan
from tests.conftest import TestServer
from tests.support.drain_harness import DrainUnderTest
from tests.support.openai_server import KEY
from tests.support.queue_harness import DIMENSIONS, MODEL, VECTOR

BAD: Final = [0.5, 0.5, -0.5, 0.5]


def asked(queue: DrainUnderTest) -> list[str]:
    """The entities whose texts went to the provider, in order."""
    texts = [text for request in queue.provider.requests for text in request["input"]]
    return sorted(text.split("\n")[0].removeprefix("Name: ") for text in texts)


async def given_embedded(queue: DrainUnderTest) -> None:
    await queue.given(3)
    await queue.run("MATCH (e:Entity {name: 'e2'}) SET e.entityType = 'other'")
    await queue.drained()
    queue.provider.requests.clear()


async def plant(queue: DrainUnderTest, uid: str, vector: list[float]) -> None:
    """Put a vector in the place of ours, with a mark that fits it."""
    await queue.run(
        "MATCH (e:Entity {name: $uid}) SET e.embedding = $vector, e.embedding_print = $print",
        uid=uid,
        vector=vector,
        print=print_of(vector_of(vector)),
    )


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


async def test_m86_a_forced_scan_replaces_a_bad_vector_that_carries_our_own_mark(
    queue: DrainUnderTest,
) -> None:
    """Nobody can see that it is bad: model, hash, version and the mark of the vector all fit."""
    await given_embedded(queue)
    good, other = await queue.vector("e0"), await queue.vector("e1")
    await plant(queue, "e0", BAD)
    trusted = await queue.coverage()

    unforced = await queue.drained()
    kept = await queue.vector("e0")
    await forced(queue, Forced())
    await queue.drained()

    assert trusted[Coverage.CURRENT] == 3
    assert (unforced.completed, kept) == (0, BAD)
    assert await queue.vector("e0") == good != BAD
    assert await queue.vector("e1") == other


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


@pytest.fixture
def settings(
    queue: DrainUnderTest, neo4j_server: TestServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the command reads: the same queue, the same provider."""
    variables = {
        **neo4j_server.environment,
        "EMBED_JOB_RETENTION_DAYS": "14",
        "EMBEDDING_PROVIDER": "openai",
        "EMBEDDING_MODEL": MODEL,
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": queue.provider.base_url,
        "EMBEDDING_PROFILE": "openai",
    }
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


async def command(*arguments: str) -> Result:
    """Run ``embed-pipeline reconcile`` in a thread; it has an event loop of its own."""
    return await asyncio.to_thread(CliRunner().invoke, app, ["reconcile", *arguments])


@pytest.mark.usefixtures("settings")
async def test_m86_the_command_means_type_model_and_age_together(queue: DrainUnderTest) -> None:
    await given_embedded(queue)
    # e0 and e2, which is of another type, were embedded in 1970.
    await queue.run("MATCH (e:Entity) WHERE e.name <> 'e1' SET e.embedding_at = 1")
    which = ("--type", "test", "--model", MODEL, "--older-than", "7d")

    preview = await command("--force", *which, "--dry-run")
    looked = await queue.counted()
    done = await command("--force", *which)
    await queue.drained()

    assert (preview.exit_code, done.exit_code) == (0, 0), (preview.output, done.output)
    assert looked == {"completed": 3}
    for said in (preview.output, done.output):
        assert re.search(r"To be embedded again +1\n", said), said
    assert asked(queue) == ["e0"]


@pytest.mark.parametrize(
    "which", [("--type", "test"), ("--model", MODEL), ("--older-than", "7d")], ids=lambda w: w[0]
)
@pytest.mark.usefixtures("settings")
async def test_m86_the_command_refuses_a_choice_that_nothing_is_forced_for(
    queue: DrainUnderTest, which: tuple[str, str]
) -> None:
    await queue.run("CREATE (:Entity {name: 'new', version: 1.0})")

    refused = await command(*which)

    assert isinstance(refused.exception, ConfigurationError)
    assert "say what --force means; add it" in str(refused.exception)
    assert await queue.counted() == {}
