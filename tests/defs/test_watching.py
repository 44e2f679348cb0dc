"""A tick at rest watches the queue, so that what is written then starts a drain within a second."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import dagster as dg
import pytest

from embed_pipeline.defs import watching
from embed_pipeline.defs.resources import Neo4jResource
from tests.defs.conftest import Deployment

NEVER = timedelta(minutes=10)


class Watch:
    """The watch of one tick; somebody may write while it pauses."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.pauses = 0
        self.other: dict[str, str] = {}

    async def until_over(
        self, *, after: float | None = 1.0, writing: Callable[[], Awaitable[object]] | None = None
    ) -> None:
        """``after`` is when the last tick ended."""
        loop = asyncio.get_running_loop()

        async def write() -> None:
            if writing is not None:
                await writing()

        async def pause(_: float) -> None:
            self.pauses += 1
            if self.pauses == 2:
                # On the loop of the test: the watch has one of its own.
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(write(), loop))
            await asyncio.sleep(0)

        context = dg.SensorEvaluationContext(
            instance_ref=None,
            last_tick_completion_time=after,
            last_run_key=None,
            cursor=None,
            log_key=None,
            repository_name=None,
            instance=self.deployment.instance,
        )
        own = self.deployment.settings
        # Another embedding stands before it, at rest.
        other = own.model_copy(update={"queue": "other", **self.other})
        neo4j = Neo4jResource((other, own))
        await asyncio.to_thread(watching.watch_for_jobs, context, neo4j, pause=pause)


@pytest.fixture
def watch(deployment: Deployment, monkeypatch: pytest.MonkeyPatch) -> Watch:
    """On a queue at rest; what ends it must be something else than the time."""
    monkeypatch.setattr(watching, "LONGEST", NEVER)
    return Watch(deployment)


async def test_a_job_that_is_written_at_rest_for_one_of_two_embeddings_ends_the_watch(
    watch: Watch, deployment: Deployment
) -> None:
    await watch.until_over(writing=lambda: deployment.queue.given_jobs("ada"))

    assert watch.pauses == 2


async def test_a_queue_with_a_job_in_work_is_looked_at_at_once(
    watch: Watch, deployment: Deployment
) -> None:
    await deployment.queue.leased("ada")

    await watch.until_over()

    assert watch.pauses == 0


async def test_the_watch_ends_before_the_tick_of_another_loop(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "LONGEST", timedelta(seconds=0.5))

    await watch.until_over()

    assert watch.pauses > 0


@pytest.mark.parametrize("standby", ["false", "true"])
async def test_neither_the_first_tick_nor_one_on_standby_waits(
    watch: Watch, monkeypatch: pytest.MonkeyPatch, standby: str
) -> None:
    monkeypatch.setenv("EMBED_STANDBY", standby)

    await watch.until_over(after=1.0 if standby == "true" else None)

    assert watch.pauses == 0


async def test_an_embedding_on_standby_ends_the_watch_of_no_other(
    watch: Watch, deployment: Deployment
) -> None:
    watch.other = {"standby": "true"}

    await watch.until_over(writing=lambda: deployment.queue.given_jobs("ada"))

    assert watch.pauses == 2


async def test_a_database_that_is_gone_is_left_to_the_look(
    watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:1")

    await watch.until_over()

    assert watch.pauses == 0
