"""What an operator starts by hand: each job does what it says, and reports its numbers."""

from datetime import timedelta

import dagster as dg
import pytest

from embed_pipeline.domain.breaker import BreakerStatus
from embed_pipeline.domain.coverage import Coverage
from embed_pipeline.domain.health import Verdict
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.operations import wiring
from embed_pipeline.operations.reading import examine_everything
from embed_pipeline.store.connection import connected
from tests.defs.conftest import Deployment
from tests.support.dagster_results import figures, problem
from tests.support.queue_harness import ACME_SHAPE, MODEL

PENDING, PROCESSING = JobStatus.PENDING, JobStatus.PROCESSING
DAY, MINUTE = timedelta(days=1), timedelta(minutes=1)
RUN = "5f0c7e1a-run"


async def verdict_of(deployment: Deployment, check: str) -> Verdict:
    settings = deployment.settings
    async with connected(wiring.connection(settings)) as driver:
        _, verdicts = await examine_everything(driver, settings)
    [found] = [verdict for verdict in verdicts if verdict.check.name == check]
    return found


class TestRecoverStaleLeases:
    async def test_takes_expired_leases_and_leaves_valid_ones(self, deployment: Deployment) -> None:
        with deployment.ago(10 * MINUTE) as queue:
            await queue.leased("dead", "gone", owner=f"{RUN}/host/1")
        await queue.leased("alive")

        found = figures(await deployment.run("recover_stale_leases"))

        assert found["recovered"] == 2
        assert {row["entity"] for row in found["jobs"]} == {"dead", "gone"}
        assert {row["former owner"] for row in found["jobs"]} == {f"{RUN}/host/1"}
        assert await queue.statuses("dead", "gone", "alive") == [PENDING, PENDING, PROCESSING]

    async def test_takes_no_more_than_it_may(self, deployment: Deployment) -> None:
        with deployment.ago(10 * MINUTE) as queue:
            await queue.leased("a", "b", "c")

        found = figures(await deployment.run("recover_stale_leases", {"limit": 2}))

        assert found["recovered"] == 2
        assert (await queue.admin.counts())[PROCESSING] == 1

    async def test_m79_a_dry_run_lists_them_and_changes_nothing(
        self, deployment: Deployment
    ) -> None:
        with deployment.ago(10 * MINUTE) as queue:
            await queue.leased("dead", owner=f"{RUN}/host/1")
        before = await queue.nodes()

        found = figures(await deployment.run("recover_stale_leases", {"dry_run": True}))

        assert found["would_recover"] == 1
        assert [row["owner"] for row in found["jobs"]] == [f"{RUN}/host/1"]
        assert await queue.nodes() == before

    async def test_is_noted_also_when_there_is_nothing_to_do(self, deployment: Deployment) -> None:
        assert await deployment.queue.last_recovery() is None

        assert figures(await deployment.run("recover_stale_leases"))["recovered"] == 0

        assert await deployment.queue.last_recovery() is not None


async def test_the_check_looks_at_each_state_by_its_own_retention(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "30")
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS_FAILED", "7")
    with deployment.ago(20 * DAY) as queue:
        await queue.in_state("kept", JobStatus.COMPLETED)
    before = await verdict_of(deployment, "retention_honoured")
    with deployment.ago(9 * DAY) as queue:
        await queue.in_state("forgotten", JobStatus.FAILED)

    after = await verdict_of(deployment, "retention_honoured")

    assert (before.passed, after.passed) == (True, False)
    assert "there are still failed jobs that ended 9 d ago" in after.message


class TestCleanupExpiredJobs:
    @staticmethod
    async def given_ended_jobs(deployment: Deployment) -> None:
        for days in (8, 13, 15, 40):
            with deployment.ago(days * DAY) as queue:
                await queue.in_state(f"ended {days} days ago", JobStatus.COMPLETED)
        with deployment.ago(40 * DAY) as queue:
            await queue.in_state("waiting", PENDING)

    async def test_deletes_what_has_ended_before_the_retention(
        self, deployment: Deployment
    ) -> None:
        await self.given_ended_jobs(deployment)

        found = figures(await deployment.run("cleanup_expired_jobs"))

        assert found["deleted"] == 2
        assert found["failed_batches"] == 0
        assert {node["entity_uid"] for node in await deployment.queue.nodes()} == {
            "ended 8 days ago",
            "ended 13 days ago",
            "waiting",
        }
        assert await deployment.queue.vector("ended 40 days ago") is not None

    async def test_the_retention_of_one_run_can_be_another(self, deployment: Deployment) -> None:
        await self.given_ended_jobs(deployment)

        found = figures(await deployment.run("cleanup_expired_jobs", {"retention_days": 7}))

        assert found["deleted"] == 4

    async def test_a_dry_run_counts_and_deletes_nothing(self, deployment: Deployment) -> None:
        await self.given_ended_jobs(deployment)
        before = await deployment.queue.nodes()

        found = figures(await deployment.run("cleanup_expired_jobs", {"dry_run": True}))

        assert found["would_delete"] == 2
        assert "deleted" not in found
        assert await deployment.queue.nodes() == before


class TestReconcileEmbeddings:
    async def test_enqueues_what_has_no_vector_and_keeps_its_report(
        self, deployment: Deployment
    ) -> None:
        queue = deployment.queue
        await queue.in_state("done", JobStatus.COMPLETED)
        await queue.put_entity("new")
        await queue.put_entity("newer")

        found = figures(await deployment.run("reconcile_embeddings", {"page_size": 1}))

        assert found["entities"] == 3
        assert found["entities_missing"] == 2
        assert found["enqueued_created"] == 2
        assert found["model"] == MODEL
        assert await queue.statuses("new", "newer") == [PENDING, PENDING]
        kept = await queue.queue.reconciler(MODEL).last()
        assert kept is not None
        assert kept.entities == 3
        assert kept.counts[Coverage.CURRENT] == 1

    async def test_its_log_says_what_the_percentage_leaves_out(
        self, deployment: Deployment
    ) -> None:
        await deployment.queue.in_state("done", JobStatus.COMPLETED)
        await deployment.queue.run("CREATE (:Entity {name: true})")

        result = await deployment.run("reconcile_embeddings")

        said = [entry.user_message for entry in deployment.instance.all_logs(result.run_id)]
        assert "2 entities, 100.00 % are current (besides 1 not embeddable), {}" in said

    async def test_a_dry_run_enqueues_nothing(self, deployment: Deployment) -> None:
        await deployment.queue.put_entity("new")

        found = figures(await deployment.run("reconcile_embeddings", {"dry_run": True}))

        assert found["entities_missing"] == 1
        assert not [name for name in found if name.startswith("enqueued")]
        assert await deployment.queue.nodes() == []

    async def test_a_dry_run_adds_nothing_to_the_asset(self, deployment: Deployment) -> None:
        await deployment.queue.put_entity("new")

        figures(await deployment.run("reconcile_embeddings", {"dry_run": True}))

        assert not deployment.instance.has_asset_key(dg.AssetKey("entity_embeddings"))

    async def test_a_second_queue_reports_to_its_own_asset(
        self, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EMBED_QUEUE", "acme")
        monkeypatch.setenv("EMBED_ENTITY_VECTOR", ACME_SHAPE.vector)
        figures(await deployment.run("initialise_schema"))

        figures(await deployment.run("reconcile_embeddings"))

        keys = deployment.instance.all_asset_keys()
        assert dg.AssetKey(["acme", "entity_embeddings"]) in keys
        assert dg.AssetKey("entity_embeddings") not in keys

    async def test_its_report_outlives_the_run(self, deployment: Deployment) -> None:
        await deployment.queue.put_entity("new")

        result = await deployment.run("reconcile_embeddings")

        deployment.instance.delete_run(result.run_id)
        event = deployment.instance.get_latest_materialization_event(
            dg.AssetKey("entity_embeddings")
        )
        assert event is not None
        assert event.run_id == ""
        assert event.asset_materialization is not None
        assert event.asset_materialization.metadata["entities"].value == 1

    async def test_its_report_is_that_of_its_own_queue(
        self, deployment: Deployment, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("EMBED_QUEUE", "acme")
        monkeypatch.setenv("EMBED_ENTITY_VECTOR", "acme_embedding")
        figures(await deployment.run("initialise_schema"))

        figures(await deployment.run("reconcile_embeddings", {"dry_run": True}))
        on_a_dry_run = deployment.instance.all_asset_keys()
        figures(await deployment.run("reconcile_embeddings"))

        reported = deployment.instance.all_asset_keys()
        assert on_a_dry_run == []
        assert reported == [dg.AssetKey(["acme", "entity_embeddings"])]

    async def test_m137_vectors_of_outdated_versions_go_but_not_on_a_dry_run(
        self, deployment: Deployment
    ) -> None:
        queue = deployment.queue
        await queue.in_state("old", JobStatus.COMPLETED)
        await queue.run("MATCH (e:Entity {name: 'old'}) SET e.validTo = timestamp()")

        figures(await deployment.run("reconcile_embeddings", {"dry_run": True}))
        kept = await queue.vector("old")
        figures(await deployment.run("reconcile_embeddings"))

        assert kept is not None
        assert await queue.vector("old") is None


class TestInitialiseSchema:
    async def test_creates_what_is_missing_and_nothing_twice(self, deployment: Deployment) -> None:
        await deployment.queue.run("DROP INDEX entity_embeddings IF EXISTS")

        first = figures(await deployment.run("initialise_schema"))
        second = figures(await deployment.run("initialise_schema"))

        assert first["created"] == ["entity_embeddings"]
        assert second["created"] == []
        assert set(second["already there"]) == {*first["already there"], "entity_embeddings"}


class TestPauseAndResume:
    async def test_a_paused_queue_gives_out_nothing_until_it_is_resumed(
        self, deployment: Deployment
    ) -> None:
        queue = deployment.queue
        await queue.given_jobs("ada")

        result = await deployment.run("pause_queue")
        refused = await queue.lease()
        state = await queue.switch.state()
        found = figures(await deployment.run("resume_queue"))

        assert result.success
        assert refused.jobs == ()
        assert state.paused_by == f"an unknown user of Dagster, Dagster run {result.run_id}"
        assert found == {"breaker": "closed"}
        assert len((await queue.lease()).jobs) == 1

    async def test_the_breaker_stays_open_unless_it_is_to_be_closed(
        self, deployment: Deployment
    ) -> None:
        switch = deployment.queue.switch
        await switch.open_breaker("no credit")

        kept = figures(await deployment.run("resume_queue"))
        closed = figures(await deployment.run("resume_queue", {"close_breaker": True}))

        assert kept == {"breaker": "open"}
        assert closed == {"breaker": "closed"}
        assert (await switch.state()).breaker.status is BreakerStatus.CLOSED


class TestClearLimits:
    async def test_ends_the_pause_of_the_provider_and_says_which(
        self, deployment: Deployment
    ) -> None:
        limiter = deployment.queue.limiter(RateLimits())
        held = await limiter.hold(DAY, owner=RUN, said="slow down")

        found = figures(await deployment.run("clear_limits"))
        nothing = figures(await deployment.run("clear_limits"))

        assert found == {"ended": True, "hold": str(held.hold)}
        assert nothing["ended"] is False
        assert (await limiter.acquire()).is_granted


class TestReleaseLeasesOfRun:
    async def test_gives_the_attempts_back(self, deployment: Deployment) -> None:
        queue = deployment.queue
        await queue.leased("a", "b", owner=f"{RUN}/host/1")
        await queue.leased("other", owner="another-run/host/1")

        found = figures(await deployment.run("release_leases_of_run", {"run_id": RUN}))

        assert found == {"released": 2}
        assert await queue.statuses("a", "b", "other") == [PENDING, PENDING, PROCESSING]
        assert (await queue.job("a")).attempts == 0

    async def test_keeps_them_for_a_worker_that_has_died(self, deployment: Deployment) -> None:
        queue = deployment.queue
        await queue.leased("a", owner=f"{RUN}/host/1")

        found = figures(
            await deployment.run("release_leases_of_run", {"run_id": RUN, "count_attempts": True})
        )

        job = await queue.job("a")
        assert found["released"] == 1
        assert [row["entity"] for row in found["jobs"]] == ["a"]
        assert job.status is PENDING
        assert job.attempts == 1
        assert job.is_suspect


async def test_a_server_that_is_gone_is_one_clear_error(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NEO4J_URI", "bolt://127.0.0.1:9")

    said = problem(await deployment.run("pause_queue"))

    assert "127.0.0.1:9" in said
    assert "Traceback" not in said


async def test_embedding_all_again_fails_until_somebody_accepts_what_it_costs(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBEDDING_PRICE_USD_PER_MILLION", "1000000")
    await deployment.queue.put_entity("ada")
    figures(await deployment.run("initialise_schema"))

    refused = await deployment.run("reconcile_embeddings", {"force": True})
    looked = await deployment.run("reconcile_embeddings", {"force": True, "dry_run": True})
    jobs_before = await deployment.queue.admin.counts()
    accepted = await deployment.run("reconcile_embeddings", {"force": True, "accept_cost": True})

    assert not refused.success
    assert "EMBED_CONFIRM_USD, 1. Go on? Set accept_cost to true" in problem(refused)
    assert looked.success
    assert sum(jobs_before.values()) == 0
    assert figures(accepted)["enqueued_created"] == 1


class TestExplainEntity:
    async def test_m118_says_why_and_shows_no_text(self, deployment: Deployment) -> None:
        queue = deployment.queue
        await queue.given_jobs("ada")

        run = await deployment.run("explain_entity", {"entity": "ada"})

        found = figures(run)
        assert found["why"] == "it has no vector yet; its job waits for a drain"
        assert (found["coverage"], found["is_found"]) == ("missing", False)
        assert [row["status"] for row in found["jobs"]] == ["pending"]
        assert "Observations" not in str(found)
