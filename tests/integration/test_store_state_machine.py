"""The real store against the queue in memory: the same steps, the same state after every one.

``EMBED_PIPELINE_EXAMPLES`` sets how many runs of up to 40 steps are made. ``EMBED_PIPELINE_SHRINK``
set to ``no`` ends at the first difference, for those who only want to know whether there is one.
"""

import asyncio
import os
import zlib
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any, ClassVar, LiteralString

import pytest
from hypothesis import HealthCheck, Phase, settings, strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from embed_pipeline.domain.contents import Contents
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ErrorCategory, TransitionRefusedError
from embed_pipeline.domain.fairness import Lane
from embed_pipeline.domain.job import Job, JobFilter, JobStatus, Lease, NewJob
from embed_pipeline.domain.pieces import HASHED_AS, Passage, Pieces
from embed_pipeline.domain.rate_window import RateLimits
from embed_pipeline.domain.relations import READ_AS, Relations, line_of
from embed_pipeline.domain.results import Completion, Failure
from embed_pipeline.domain.text import text_hash
from embed_pipeline.domain.vector import Vector, numbers_of, vector_of
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import open_driver
from embed_pipeline.store.database import to_ms
from embed_pipeline.store.pieces import sweep_pieces
from embed_pipeline.testing.memory import FakeQueue
from tests.conftest import TestServer
from tests.support.queue_harness import (
    DIMENSIONS,
    LEASE,
    MODEL,
    VECTOR,
    FakeUnderTest,
    Neo4jUnderTest,
    assert_consistent,
)

EXAMPLES = int(os.environ.get("EMBED_PIPELINE_EXAMPLES", "12"))
SHRINK = [] if os.environ.get("EMBED_PIPELINE_SHRINK") == "no" else [Phase.shrink, Phase.explain]
WEEK = timedelta(days=7)
LIMITS = RateLimits(requests=3, interval=timedelta(seconds=30), tokens=100)
UIDS = ["a", "b", "c", "d", "e"]
uids = st.sampled_from(UIDS)
texts = st.sampled_from(["text", "other"])
owners = st.sampled_from(["run-1", "run-1/x", "run-2"])
picks = st.lists(st.integers(0, 30), min_size=1, max_size=5, unique=True)
RELATED = EntityShape(
    template="{name}: {observations}\n{relations}",
    relations=Relations(names=("title", "name")),
    pieces=Pieces(tokens=16),
)
"""Neighbours are in the text, and its pieces are nodes."""
RELATE: LiteralString = """
MATCH (one:Entity {name: $one}), (other:Entity {name: $other})
OPTIONAL MATCH (one)-[old:KNOWS]->(other)
WITH one, other, collect(old) AS olds
FOREACH (old IN olds | DELETE old)
FOREACH (_ IN CASE WHEN olds = [] THEN [1] ELSE [] END | CREATE (one)-[:KNOWS]->(other))
"""
PIECES: LiteralString = """
MATCH (entity:Entity)
OPTIONAL MATCH (entity)<-[:FROM_DOCUMENT]-(piece:EmbedPiece)
WITH entity, piece ORDER BY piece.index
RETURN entity.name AS uid,
  collect(CASE WHEN piece IS NOT NULL THEN [piece.text, piece.model, piece.embedding] END) AS pieces
"""
PULL_APART = """
MATCH (job:EmbedJob {entity_uid: $uid, version: $version})
SET job.queued_at = $at,
    job.ready_at = CASE WHEN job.ready_at IS NOT NULL THEN $at END,
    job.suspect_at = CASE WHEN job.suspect_at IS NOT NULL THEN $at END
"""
COMPARED = (
    *("status", "priority", "attempts", "max_attempts", "fence", "created_at", "queued_at"),
    *("started_at", "heartbeat_at", "processed_at", "lock_owner", "lock_until", "last_owner"),
    *("expiries", "error", "error_category", "cancelled_by"),
    *("tokens", "pieces", "text_hash"),
)


class QueueMachine(RuleBasedStateMachine):
    """Drives both queues; ``leases`` holds the same lease as each of them names it."""

    server: ClassVar[TestServer]
    shape: ClassVar[EntityShape]

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.leases: list[tuple[Lease, Lease]] = []

    @initialize()
    def start(self) -> None:
        server, shape = self.server, self.shape
        self.relations: set[tuple[str, str]] = set()
        self.titles: dict[str, str] = {}

        async def open_queue() -> Neo4jUnderTest:
            config = QueueConfig(shape=shape, roll=lambda: 0.0)
            driver = open_driver(server.connection)
            real = Neo4jUnderTest(driver, server.database, self.model.clock, config)
            await real.wipe()
            return real

        self.model = FakeUnderTest(FakeQueue(shape=shape))
        self.real = self.runner.run(open_queue())
        self.limiters = self.model.limiter(LIMITS), self.real.limiter(LIMITS)
        for uid in UIDS:
            self.run(self.model.put_entity(uid), self.real.put_entity(uid))
            self.enqueue(uid, 1, 0, None, force=False, delay=None)
        self.read_neighbours()

    def teardown(self) -> None:
        if hasattr(self, "real"):
            self.runner.run(self.real.driver.close())
        self.runner.close()

    def run(self, *steps: Awaitable[Any]) -> list[Any]:
        """Run both; a refusal is an answer too."""

        async def answer(step: Awaitable[Any]) -> Any:
            try:
                return await step
            except TransitionRefusedError:
                return "refused"

        async def main() -> list[Any]:
            return [await answer(step) for step in steps]

        self.model.clock.advance(timedelta(milliseconds=1))
        return self.runner.run(main())

    def both(self, step: Callable[[Any], Awaitable[Any]]) -> None:
        model, real = self.run(step(self.model), step(self.real))
        assert real == model

    def some(self, picks: list[int]) -> list[tuple[Lease, Lease]]:
        """Leases of any age: current, settled, recovered or of deleted jobs."""
        recent = self.leases[:-32:-1]
        return list(dict.fromkeys(recent[n % len(recent)] for n in picks if recent))

    def digest(self, uid: str, text: str) -> str:
        """The hash of an entity's text with the neighbours that it has now."""
        return self.model.fake.hash_of(
            {
                "name": uid,
                "entityType": "test",
                "observations": [text],
                READ_AS: self.neighbours(uid),
            }
        )

    def neighbours(self, uid: str) -> list[str]:
        """What the store is to read."""
        called = {name: self.titles.get(name, name) for name in UIDS}
        out = [line_of(">", "KNOWS", called[b]) for a, b in self.relations if a == uid]
        return out + [line_of("<", "KNOWS", called[a]) for a, b in self.relations if b == uid]

    def read_neighbours(self) -> None:
        for uid, entity in self.model.fake.entities.items():
            entity.properties = {**entity.properties, READ_AS: self.neighbours(uid)}

    def pull_apart(self) -> None:
        """Give the jobs that one step has queued different ages: among equals the order is open."""
        now = self.model.clock.now
        batch = [job for job in self.model.fake.jobs.values() if job.queued_at == now]
        for place, job in enumerate(sorted(batch, key=_key)):
            queued_at = now + timedelta(milliseconds=place)
            self.model.fake.jobs[job.id] = replace(job, queued_at=queued_at)
            uid, version = _key(job)
            step = self.real.run(PULL_APART, uid=uid, version=version, at=to_ms(queued_at))
            self.runner.run(step)
        self.model.clock.advance(timedelta(milliseconds=len(batch)))

    @rule(uid=uids, text=texts, version=st.integers(1, 2))
    def write_entity(self, uid: str, text: str, version: int) -> None:
        self.run(
            self.model.put_entity(uid, text, version=version),
            self.real.put_entity(uid, text, version=version),
        )
        self.read_neighbours()

    @rule(one=uids, other=uids)
    def relate(self, one: str, other: str) -> None:
        """Join two entities, or one with itself; part them if they are."""
        if {one, other} <= self.model.fake.entities.keys():
            self.relations ^= {(one, other)}
        self.run(self.real.run(RELATE, one=one, other=other))
        self.read_neighbours()

    @rule(uid=uids, title=st.sampled_from(["", "Dr", "Sir"]))
    def rename(self, uid: str, title: str) -> None:
        """Call an entity something else in the texts of its neighbours."""
        if uid in self.model.fake.entities:
            self.titles[uid] = f"{title} {uid}"
        called = f"{title} {uid}"
        self.run(
            self.real.run("MATCH (e:Entity {name: $uid}) SET e.title = $to", uid=uid, to=called)
        )
        self.read_neighbours()

    @rule(uid=uids)
    def delete_entity(self, uid: str) -> None:
        self.run(self.model.delete_entity(uid), self.real.delete_entity(uid))
        self.relations = {pair for pair in self.relations if uid not in pair}
        self.titles.pop(uid, None)
        self.read_neighbours()

    @rule(
        uid=uids,
        version=st.integers(1, 2),
        priority=st.integers(-1, 1),
        text=st.none() | texts,
        force=st.booleans(),
        delay=st.none() | st.just(timedelta(minutes=3)),
    )
    def enqueue(
        self,
        uid: str,
        version: int,
        priority: int,
        text: str | None,
        force: bool,
        delay: timedelta | None,
    ) -> None:
        hash_ = self.digest(uid, text) if text else None
        wish = NewJob(uid, MODEL, version, priority, hash_, force, delay=delay)
        self.both(lambda queue: queue.admin.enqueue([wish]))

    @rule(owner=owners, limit=st.integers(1, 4), lane=st.sampled_from(Lane))
    def lease(self, owner: str, limit: int, lane: Lane) -> None:
        model, real = self.run(
            self.model.lease(owner, limit, lane=lane), self.real.lease(owner, limit, lane=lane)
        )
        assert [_key(x.lease) for x in real.jobs] == [_key(x.lease) for x in model.jobs]
        assert real.refusal == model.refusal
        self.leases += [(m.lease, r.lease) for m, r in zip(model.jobs, real.jobs, strict=True)]

    @rule(owner=owners, act=st.sampled_from(["heartbeat", "complete", "fail", "release"]))
    def come_back(self, owner: str, act: str) -> None:
        """A worker that restarts under its old name, and acts on a lease of its former life."""
        self.lease(owner, 4, Lane.ANY)
        former = len(self.leases)
        self.release_owner(owner)
        self.lease(owner, 4, Lane.ANY)
        picks = [len(self.leases) - former]
        match act:
            case "heartbeat":
                self.heartbeat(picks)
            case "complete":
                self.complete(picks, "text", has_vector=True, pieces=1)
            case "fail":
                self.fail(picks, ErrorCategory.TRANSIENT, None, is_pinned=False)
            case _:
                self.release(picks)

    @rule(picks=picks)
    def heartbeat(self, picks: list[int]) -> None:
        pairs = self.some(picks)
        model, real = self.run(
            self.model.jobs.heartbeat([m for m, _ in pairs], duration=LEASE),
            self.real.jobs.heartbeat([r for _, r in pairs], duration=LEASE),
        )
        assert real.lock_until == model.lock_until
        for kind in ("held", "cancelled", "lost"):
            assert [_name(x) for x in getattr(real, kind)] == [
                _name(x) for x in getattr(model, kind)
            ]

    @rule(picks=picks)
    def load(self, picks: list[int]) -> None:
        pairs = self.some(picks)
        model, real = self.run(
            self.model.jobs.load([m for m, _ in pairs]), self.real.jobs.load([r for _, r in pairs])
        )
        assert [x.fate for x in real] == [x.fate for x in model]

    @rule(uid=uids, text=texts, pieces=st.sampled_from([1, 2, 9]), is_anew=st.booleans())
    def edit_and_embed(self, uid: str, text: str, pieces: int, is_anew: bool) -> None:
        """What most entities live through, again and again: by chance alone it would be rare."""
        if uid in self.model.fake.entities:
            version = self.model.fake.entities[uid].version
            self.write_entity(uid, text, version)
            if is_anew:
                self.enqueue(uid, version, 0, None, force=True, delay=None)
        self.reconcile()
        former = len(self.leases)
        self.lease("run-1", 4, Lane.ANY)
        if leased := len(self.leases) - former:
            self.complete(
                list(range(leased)), text, has_vector=True, pieces=pieces, is_anew=is_anew
            )

    @rule(
        picks=picks,
        text=texts,
        has_vector=st.booleans(),
        pieces=st.sampled_from([1, 9]),
        is_anew=st.booleans(),
    )
    def complete(
        self, picks: list[int], text: str, has_vector: bool, pieces: int, is_anew: bool = False
    ) -> None:
        """As a drain does it: pieces that the entity has are not asked for, unless one wants it."""

        def row(lease: Lease) -> Completion:
            uid = lease.entity_uid
            made = Completion(
                lease, VECTOR if has_vector else None, self.digest(uid, text), 7, pieces
            )
            if self.model.fake.shape.pieces is None or not has_vector:
                return made
            # The second is that of other entities, too.
            parts = (f"{uid} {text}", *(f"{text} {number % 3}" for number in range(1, pieces)))
            former = self.model.fake.entities.get(uid)
            known: dict[str, Vector] = {}
            if former is not None and former.vector_model == lease.model and not is_anew:
                known = {piece.text_hash: piece.vector for piece in former.pieces}
            passages = tuple(
                Passage(16 * place, part, digest, vector, is_fresh=digest not in known)
                for place, part in enumerate(parts)
                for digest in [text_hash(part, recipe=HASHED_AS)]
                for vector in [known.get(digest) or vector_for(part, is_anew=is_anew)]
            )
            return replace(made, passages=passages)

        def rows(leases: list[Lease]) -> list[Completion]:
            return [row(lease) for lease in leases]

        pairs = self.some(picks)
        # Two leases of one entity cannot both be current.
        model, real = self.run(
            self.model.jobs.complete(rows([m for m, _ in pairs])),
            self.real.jobs.complete(rows([r for _, r in pairs])),
        )
        assert real == model

    @rule(
        picks=picks,
        category=st.sampled_from(ErrorCategory),
        text=st.none() | texts,
        is_pinned=st.booleans(),
    )
    def fail(
        self, picks: list[int], category: ErrorCategory, text: str | None, is_pinned: bool
    ) -> None:
        def rows(leases: list[Lease]) -> list[Failure]:
            return [
                Failure(
                    x,
                    category,
                    f"failed {category}",
                    text_hash=self.digest(x.entity_uid, text) if text else None,
                    is_pinned=is_pinned,
                )
                for x in leases
            ]

        pairs = [pair for n, pair in enumerate(self.some(picks)) if n == 0]
        model, real = self.run(
            self.model.jobs.fail(rows([m for m, _ in pairs])),
            self.real.jobs.fail(rows([r for _, r in pairs])),
        )
        assert real == model

    @rule(picks=picks)
    def release(self, picks: list[int]) -> None:
        pairs = self.some(picks)
        model, real = self.run(
            self.model.jobs.release([m for m, _ in pairs]),
            self.real.jobs.release([r for _, r in pairs]),
        )
        assert real == model

    @rule(grace=st.sampled_from([timedelta(0), timedelta(minutes=1)]))
    def recover(self, grace: timedelta) -> None:
        model, real = self.run(
            self.model.jobs.recover_expired(limit=100, grace=grace),
            self.real.jobs.recover_expired(limit=100, grace=grace),
        )
        assert sorted(map(_recovered, real)) == sorted(map(_recovered, model))

    @rule(owner=owners)
    def recover_owner(self, owner: str) -> None:
        model, real = self.run(
            self.model.admin.recover_owner(owner), self.real.admin.recover_owner(owner)
        )
        assert sorted(map(_recovered, real)) == sorted(map(_recovered, model))

    @rule(owner=owners)
    def release_owner(self, owner: str) -> None:
        self.both(lambda queue: queue.admin.release_owner(owner))

    @rule(uid=uids)
    def cancel(self, uid: str) -> None:
        async def step(queue: Any) -> Any:
            found = await queue.admin.find_jobs(JobFilter(entity_uids=(uid,)))
            first = min(found, key=lambda job: job.version, default=None)
            return first and await queue.admin.cancel_job(first.id, by="operator", reason="why")

        self.both(step)

    @rule(status=st.sampled_from(JobStatus), preview=st.booleans())
    def cancel_many(self, status: JobStatus, preview: bool) -> None:
        which = JobFilter(statuses=frozenset({status}))

        async def step(queue: Any) -> int:
            return (await queue.admin.cancel(which, by="operator", preview=preview)).count

        self.both(step)

    @rule(categories=st.none() | st.frozensets(st.sampled_from(ErrorCategory), min_size=1))
    def retry_failed(self, categories: frozenset[ErrorCategory] | None) -> None:
        async def step(queue: Any) -> int:
            return (await queue.admin.retry_failed(JobFilter(categories=categories))).count

        self.both(step)
        self.pull_apart()

    @rule()
    def purge(self) -> None:
        self.both(lambda queue: queue.purge(WEEK))

    @rule()
    def reconcile(self) -> None:
        async def step(queue: Any) -> Any:
            # The queue in memory has no properties whose contents it could look at.
            return replace(await queue.reconcile(), contents=Contents())

        self.both(step)
        self.pull_apart()

    @rule()
    def record_recovery(self) -> None:
        self.both(lambda queue: queue.admin.record_recovery())
        self.both(lambda queue: queue.last_recovery())

    @rule(most=st.integers(1, 4), model=st.sampled_from([MODEL, "other-model"]))
    def look_at_the_backlog(self, most: int, model: str) -> None:
        self.both(lambda queue: queue.backlog(model, most=most))
        self.both(lambda queue: queue.oldest_ended())

    @rule(uid=uids, text=texts, priority=st.integers(-1, 1))
    def enqueue_in_a_transaction_of_the_caller(self, uid: str, text: str, priority: int) -> None:
        wish = NewJob(uid, MODEL, 1, priority, self.digest(uid, text))
        self.both(lambda queue: queue.enqueue_in_own_transaction(wish))

    @rule(uid=uids, text=texts, model=st.sampled_from([MODEL, "other-model"]))
    def find_vectors(self, uid: str, text: str, model: str) -> None:
        found = {"model": model, "dimensions": DIMENSIONS}
        whole = self.digest(uid, text)
        self.both(lambda queue: queue.jobs.find_vectors([whole], **found))
        # Pieces of entities that were deleted are found until a scan has removed them.
        self.run(sweep_pieces(self.real.queue.database, self.real.config))
        piece = text_hash(f"{text} 1", recipe=HASHED_AS)
        # Of two that were asked for at different times either will do.
        self.both(lambda queue: pieces_in(queue, piece, **found))

    @rule(tokens=st.integers(0, 60), hold=st.booleans())
    def ask_the_limiter(self, tokens: int, hold: bool) -> None:
        model, real = self.limiters
        if hold:
            pause = timedelta(minutes=tokens)
            told = {"owner": "run-1", "said": "slow down"}
            held, really = self.run(model.hold(pause, **told), real.hold(pause, **told))
            assert really == held
        glimpse, really = self.run(model.peek(), real.peek())
        assert really == glimpse
        granted, really = self.run(model.acquire(tokens=tokens), real.acquire(tokens=tokens))
        assert really == granted
        stands, really = self.run(model.read(), real.read())
        assert really == stands

    @rule()
    def clear_the_limiter(self) -> None:
        model, real = self.limiters
        ended, really = self.run(model.clear(), real.clear())
        assert really == ended

    @rule(on=st.booleans())
    def pause(self, on: bool) -> None:
        self.both(lambda queue: queue.switch.pause(by="x") if on else queue.switch.resume())

    @rule(on=st.booleans())
    def breaker(self, on: bool) -> None:
        self.both(
            lambda queue: queue.switch.open_breaker("why") if on else queue.switch.close_breaker()
        )

    @rule(
        duration=st.sampled_from(
            [timedelta(seconds=1), timedelta(minutes=2), LEASE, timedelta(hours=1), WEEK]
        )
    )
    def wait(self, duration: timedelta) -> None:
        self.model.clock.advance(duration)

    @invariant()
    def the_same_jobs(self) -> None:
        if not hasattr(self, "real"):
            return
        found, nodes, counters = self.runner.run(self.read())
        model = {_key(job): job for job in self.model.fake.jobs.values()}
        assert {_key(job) for job in found} == set(model)
        for job in found:
            expected = model[_key(job)]
            assert {name: getattr(job, name) for name in COMPARED} == {
                name: getattr(expected, name) for name in COMPARED
            }
            assert _due(job, self.model.clock.now) == _due(expected, self.model.clock.now)
        assert_consistent(nodes)
        put_off = {(node["entity_uid"], node["version"]) for node in nodes if node.get("put_off")}
        assert put_off == {_key(self.model.fake.jobs[id_]) for id_ in self.model.fake.put_off}
        assert counters == self.runner.run(self.model.counters())
        counts = self.runner.run(self.real.admin.counts())
        assert counts == self.runner.run(self.model.admin.counts())

    @invariant()
    def the_same_vectors(self) -> None:
        if not hasattr(self, "real"):
            return
        rows = self.runner.run(
            self.real.run("MATCH (e:Entity) RETURN e.name AS uid, e.embedding_hash AS hash")
        )
        assert {row["uid"]: row["hash"] for row in rows} == {
            uid: entity.vector_hash for uid, entity in self.model.fake.entities.items()
        }

    @invariant()
    def the_same_pieces(self) -> None:
        """Those of one text each, in its order, with the vectors of their own words."""
        if not hasattr(self, "real"):
            return
        found = self.runner.run(self.real.run(PIECES))
        assert {row["uid"]: row["pieces"] for row in found} == {
            uid: [
                [piece.text, entity.vector_model, numbers_of(piece.vector)]
                for piece in entity.pieces
            ]
            for uid, entity in self.model.fake.entities.items()
        }

    async def read(self) -> tuple[list[Job], list[dict[str, Any]], dict[str, int]]:
        return (
            await self.real.admin.find_jobs(JobFilter(), limit=1000),
            await self.real.nodes(),
            await self.real.counters(),
        )


async def pieces_in(queue: Any, digest: str, **found: Any) -> set[str]:
    return set(await queue.jobs.find_pieces([digest], **found))


def vector_for(text: str, *, is_anew: bool) -> Vector:
    """Another one for every text, and for who asks once more."""
    numbers = (zlib.crc32(f"{place}{is_anew}{text}".encode()) for place in range(DIMENSIONS))
    return vector_of(number % 1000 + 0.5 for number in numbers)


def _key(job: Job | Lease) -> tuple[str, int]:
    return (job.entity_uid, job.version)


def _name(lease: Lease) -> tuple[str, int, str, int]:
    return (lease.entity_uid, lease.version, lease.owner, lease.fence)


def _recovered(job: Any) -> tuple[Any, ...]:
    return (job.entity_uid, job.former_owner, job.status, job.attempts, job.expired_at)


def _due(job: Job, now: Any) -> Any:
    """A retry whose time has come loses it when it enters its lane, sooner or later."""
    return job.run_after if job.run_after is not None and job.run_after > now else None


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("shape", [EntityShape(), RELATED], ids=["plain", "related"])
def test_store_and_model_never_differ(neo4j_server: TestServer, shape: EntityShape) -> None:
    QueueMachine.server, QueueMachine.shape = neo4j_server, shape
    run_state_machine_as_test(
        QueueMachine,
        settings=settings(
            max_examples=max(1, EXAMPLES // 2),
            stateful_step_count=40,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
            database=None,
            phases=[Phase.generate, *SHRINK],
            # A landing must not depend on luck; everybody else explores.
            derandomize="CI" in os.environ,
        ),
    )
