"""Two deployments with two models on one queue: the second is refused, the first unaffected."""

import asyncio
import contextlib
from collections.abc import Callable
from io import StringIO
from typing import Any

import pytest
from rich.console import Console

from embed_pipeline.defs import drains
from embed_pipeline.devserver.dev import prepare_database
from embed_pipeline.devserver.output import Speaker
from embed_pipeline.domain.errors import ModelMismatchError, SchemaError
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.operations import cutover, doctor, wiring
from embed_pipeline.settings import load_settings
from embed_pipeline.store.connection import connected
from tests.defs.conftest import Deployment, SensorUnderTest
from tests.support.dagster_results import figures, problem
from tests.support.openai_server import OpenAIServer
from tests.support.queue_harness import DIMENSIONS, MODEL

OTHER = {"EMBEDDING_MODEL": "other-model"}
BOTH = (
    f"queue 'default' holds vectors of openai {MODEL} with {DIMENSIONS} dimensions, these settings "
    f"make those of openai other-model with {DIMENSIONS} dimensions"
)


@pytest.fixture(autouse=True)
def _signals_are_somebody_elses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the main thread can have handlers, and there the loop of the tests is running."""
    monkeypatch.setattr(drains, "stopped_by_signals", lambda *_: contextlib.nullcontext())


def choose(monkeypatch: pytest.MonkeyPatch, **settings: str) -> None:
    for name, value in settings.items():
        monkeypatch.setenv(name, value)


async def bad_findings() -> list[doctor.Finding]:
    found = doctor.examine(load_settings(), ask_provider=False)
    return [finding async for finding in found if finding.mark is doctor.Mark.BAD]


async def embed_everything(deployment: Deployment) -> None:
    figures(await deployment.run("reconcile_embeddings"))
    figures(await deployment.run("drain_embed_queue", {"linger_seconds": 0}))


@pytest.fixture
async def embedded(deployment: Deployment, provider: OpenAIServer) -> Deployment:
    """A deployment that has done its work."""
    for uid in ("ada", "bob"):
        await deployment.queue.put_entity(uid)
    figures(await deployment.run("initialise_schema"))
    await embed_everything(deployment)
    assert await deployment.queue.statuses("ada", "bob") == [JobStatus.COMPLETED] * 2
    return deployment


async def test_m141_a_second_model_on_a_queue_is_refused_everywhere(
    embedded: Deployment,
    provider: OpenAIServer,
    sensor: Callable[..., SensorUnderTest],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs, asked = await embedded.queue.nodes(), len(provider.requests)

    choose(monkeypatch, **OTHER)
    for job in ("initialise_schema", "reconcile_embeddings", "drain_embed_queue"):
        assert BOTH in problem(await embedded.run(job))
    for name in ("embed_backlog", "reconcile_entities"):
        tick = await sensor(name, **OTHER).tick()
        assert BOTH in (tick.skip_message or "")
        assert tick.run_requests == []
    [finding] = await bad_findings()
    assert (finding.subject, finding.detail, finding.exit_code) == ("Model", BOTH, 5)
    assert "embed-pipeline init --change-model" in finding.remedy
    with pytest.raises(ModelMismatchError):
        async with wiring.opened_queue(load_settings(), for_drain=True):
            pass

    assert await embedded.queue.nodes() == jobs
    assert len(provider.requests) == asked

    choose(monkeypatch, EMBEDDING_MODEL=MODEL)
    again = figures(await embedded.run("reconcile_embeddings"))
    assert again["entities_current"] == 2
    assert not [name for name in again if name.startswith("enqueued")]
    assert await bad_findings() == []


async def test_another_address_of_the_same_model_is_not_refused(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, OPENAI_BASE_URL="http://127.0.0.1:9/other")

    figures(await embedded.run("initialise_schema"))

    assert await bad_findings() == []


@pytest.mark.parametrize(
    "change", [OTHER, {"EMBED_ENTITY_TEMPLATE": "{name}"}], ids=["model", "template"]
)
async def test_a_deliberate_change_embeds_every_entity_again(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch, change: dict[str, str]
) -> None:
    choose(monkeypatch, **change)

    figures(await embedded.run("initialise_schema", {"change_model": True}))
    await embed_everything(embedded)

    report = figures(await embedded.run("reconcile_embeddings", {"dry_run": True}))
    assert (report["entities"], report["entities_current"]) == (2, 2)


async def test_an_index_of_other_dimensions_claims_nothing_for_its_model(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A database of an older version has no identity; whoever cannot work on it gets none."""
    choose(monkeypatch, EMBEDDING_DIMENSIONS="7")

    async with connected(wiring.connection(load_settings())) as driver:
        with pytest.raises(SchemaError, match="init --change-model"):
            await wiring.install_schema(driver, load_settings())

    choose(monkeypatch, EMBEDDING_DIMENSIONS=str(DIMENSIONS))
    figures(await deployment.run("initialise_schema"))


async def test_m106_make_dev_goes_on_with_the_live_model_and_says_how_to_change_it(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    choose(monkeypatch, **OTHER)
    said = StringIO()
    settings, speaker = load_settings(), Speaker(Console(file=said, width=1_000))

    def prepare(**options: Any) -> None:
        prepare_database(settings, speaker, **options)

    await asyncio.to_thread(prepare, change_model=False)
    speaker.close()

    assert (
        f"say openai other-model with {DIMENSIONS} dimensions, live is openai {MODEL} with "
        f"{DIMENSIONS} dimensions; to change to it, run "
    ) in said.getvalue()
    assert "embed-pipeline cutover start" in said.getvalue()
    assert await bad_findings() == []
    again = figures(await embedded.run("reconcile_embeddings"))
    assert (again["entities"], again["entities_current"]) == (2, 2)


@pytest.mark.parametrize("is_wanted", [False, True])
async def test_m106_make_dev_offers_the_cutover_to_whoever_can_be_asked(
    embedded: Deployment, monkeypatch: pytest.MonkeyPatch, is_wanted: bool
) -> None:
    choose(monkeypatch, **OTHER)
    said = StringIO()
    settings, speaker = load_settings(), Speaker(Console(file=said, width=1_000))

    def prepare() -> None:
        for _ in range(2):  # The second start finds the cut-over under way, and asks no more.
            prepare_database(settings, speaker, change_model=False, ask=lambda: is_wanted)

    await asyncio.to_thread(prepare)
    speaker.close()

    async with connected(wiring.connection(settings)) as driver:
        alias = await cutover.read(driver, settings)
        if is_wanted:  # Its indexes would be left behind.
            await cutover.finish(driver, settings, force=True)
    assert alias is not None
    assert (alias.live.model, alias.other is not None) == (MODEL, is_wanted)
    asked = f"? Fill openai other-model with {DIMENSIONS} dimensions beside the live model now? 2"
    assert said.getvalue().count(asked) == (1 if is_wanted else 2)
    assert ("It is being filled" if is_wanted else "Not now; later") in said.getvalue()
    assert await bad_findings() == []


async def test_m86_a_forced_scan_asks_the_provider_again_for_what_it_means(
    embedded: Deployment, provider: OpenAIServer
) -> None:
    asked = len(provider.requests)

    refused = problem(await embedded.run("reconcile_embeddings", {"entity_type": "nobody"}))
    nobody = figures(
        await embedded.run("reconcile_embeddings", {"force": True, "entity_type": "nobody"})
    )
    figures(await embedded.run("reconcile_embeddings", {"force": True}))
    figures(await embedded.run("drain_embed_queue", {"linger_seconds": 0}))

    assert "say what force means" in refused
    assert not [name for name in nobody if name.startswith("enqueued")]
    assert [len(body["input"]) for body in provider.requests[asked:]] == [2]
    assert await embedded.queue.statuses("ada", "bob") == [JobStatus.COMPLETED] * 2
