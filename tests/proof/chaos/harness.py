"""One run: a server, a provider, a fleet, users and operators, and a plan of faults."""

import asyncio
import logging
import multiprocessing
import random
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, Final

from embed_pipeline.devserver.config import Memory
from embed_pipeline.devserver.neo4j_server import Neo4jServer
from embed_pipeline.devserver.temporary import temporary_server
from embed_pipeline.domain.job import JobStatus
from embed_pipeline.operations import wiring
from embed_pipeline.store import schema
from embed_pipeline.store.connection import Connection, open_driver
from embed_pipeline.store.queue import Queue
from tests.conftest import QUICK
from tests.proof.chaos import mutants
from tests.proof.chaos.drain import settings_from
from tests.proof.chaos.evidence import Evidence
from tests.proof.chaos.faults import Injector
from tests.proof.chaos.fleet import Fleet, launched
from tests.proof.chaos.graph import ENTITIES, Graph, dump, rows_of
from tests.proof.chaos.history import Log, read_history
from tests.proof.chaos.operators import ERRORS, Operators
from tests.proof.chaos.plan import (
    JOB_TIMEOUT,
    LEASE,
    RECOVERY_INTERVAL,
    RELATIONS_DELAY,
    Size,
    steps,
)
from tests.proof.chaos.provider import Provider
from tests.proof.chaos.pulse import Pulse
from tests.proof.chaos.recording import Traps, record_everything
from tests.proof.chaos.scanning import Reader, scan_for_ever, scan_until_nothing_is_found
from tests.proof.chaos.texts import DIMENSIONS, KILLER, MODEL, PIECES, REFUSED, SHAPE
from tests.proof.chaos.writers import BATCH, Writer
from tests.support.bolt_proxy import BoltProxy
from tests.support.openai_server import KEY, OpenAIServer, openai_server

AHEAD: Final = 100
"""Jobs that are made before their share of the faults has happened."""
ENOUGH: Final = 400
SHORT: Final = 20
"""Pending jobs above which nothing is made, and below which something is, whatever the plan."""
STUCK_AFTER: Final = timedelta(minutes=3)
"""Without any change. A drain that dies while it asks for the provider makes all others wait, and
so does a machine with other work."""


@dataclass(frozen=True, slots=True)
class Run:
    """What is left of a run."""

    evidence: Evidence
    provider: dict[str, int]
    wall: timedelta


def special_uids(kind: str, count: int) -> list[str]:
    return [f"special-{kind}-{number}" for number in range(count)]


async def run(size: Size, *, seed: int, folder: Path, mutant: str | None = None) -> Run:
    """Do everything that the plan of the seed says, wait until all is quiet, and collect."""
    began = time.monotonic()
    log = Log(folder, "harness")
    record_everything(log, Traps())
    if mutant:
        mutants.apply(mutant)
    storm = Storm(size, seed, log, Fleet(folder, log, mutant), Provider(random.Random(seed)))
    with ExitStack() as stack:
        # It lives too short for the optimizing compiler to pay, and is started often; plans are
        # made and dropped as anywhere.
        quick = replace(QUICK, settings={})
        memory = Memory(heap="768m", pagecache="128m")
        server = stack.enter_context(temporary_server(memory=memory, tuning=quick))
        stack.callback(_guard(server).kill)
        web = stack.enter_context(openai_server())
        web.answer_with = storm.provider.answer
        # The driver and the provider's server say of every fault that it is one.
        for name in ("neo4j", "uvicorn.error"):
            logging.getLogger(name).setLevel(logging.CRITICAL)
        graph = await storm.rage(server, _variables(server, web, size))
    graph.save(folder)
    evidence = Evidence(
        history=read_history(folder),
        graph=graph,
        killers=frozenset(special_uids("killer", size.killers)),
        refused=frozenset(special_uids("refused", size.refused)),
    )
    wall = timedelta(seconds=time.monotonic() - began)
    return Run(evidence, dict(storm.provider.faults), wall)


@dataclass
class Storm:
    """From the first write to the last job."""

    size: Size
    seed: int
    log: Log
    fleet: Fleet
    provider: Provider

    async def rage(self, server: Neo4jServer, variables: dict[str, str]) -> Graph:
        """Return the graph as it is when everybody has gone home."""
        own = Connection(server.uri, server.username, server.password)
        async with open_driver(own) as driver:
            await schema.install(
                driver, database=server.database, shape=SHAPE, dimensions=DIMENSIONS
            )
            drains = launched(
                self.fleet, size=self.size.drains, server_uri=server.uri, variables=variables
            )
            async with (
                BoltProxy(server.uri) as office,
                self._queue(office, variables) as queue,
                _in_background(Pulse(driver, self.log).feel_for_ever()),
                drains,
            ):
                reader = Reader(driver, self.log, random.Random(self.seed))
                async with _in_background(reader.look_for_ever()):
                    await self._with_everybody(server, office, queue)
                unscanned = await rows_of(driver, ENTITIES)
                await scan_until_nothing_is_found(queue, self.log, _until_quiet)
            return await dump(driver, unscanned)

    @asynccontextmanager
    async def _queue(self, office: BoltProxy, variables: dict[str, str]) -> AsyncGenerator[Queue]:
        settings = settings_from({**variables, "NEO4J_URI": office.uri}, self.fleet.folder)
        async with wiring.opened_queue(settings) as queue:
            yield queue

    async def _with_everybody(self, server: Neo4jServer, office: BoltProxy, queue: Queue) -> None:
        operators = Operators(queue, self.log, random.Random(self.seed), self.size.attempts)
        planned = sum(self.size.faults.values())
        injector = Injector(
            fleet=self.fleet,
            office=office,
            operators=operators,
            provider=self.provider,
            server=server,
            log=self.log,
            planned=planned,
            jobs_between=self.size.jobs // planned // 2,
        )
        async with (
            _in_background(operators.recover_for_ever()),
            _in_background(scan_for_ever(queue, self.log)),
        ):
            async with asyncio.TaskGroup() as group:
                group.create_task(injector.run(steps(self.size, self.seed)))
                group.create_task(self._write(queue, injector))
            self.provider.is_calm = True
            self.log("calm")
            await _until_quiet(queue)

    async def _write(self, queue: Queue, injector: Injector) -> None:
        """Keep jobs coming for as long as there are faults, and at least as many as planned."""
        writer = Writer("entity", queue, self.log, random.Random(self.seed))
        for uid in special_uids("killer", self.size.killers):
            await writer.create_special(uid, KILLER)
        for uid in special_uids("refused", self.size.refused):
            await writer.create_special(uid, REFUSED)
        updates = relations = deletes = 0
        while True:
            progress = injector.progress
            is_over = progress >= 1
            pending = await _pending(queue)
            is_due = writer.created < self.size.jobs * progress + (0 if is_over else AHEAD)
            if (is_due and pending < ENOUGH) or (pending < SHORT and not is_over):
                await writer.create(BATCH)
            elif updates < self.size.updates * progress:
                await writer.update()
                updates += 1
            elif relations < self.size.relations * progress:
                await writer.edit_relations()
                relations += 1
            elif deletes < self.size.deletes * progress:
                await writer.delete()
                deletes += 1
            elif is_over and not is_due:
                return
            else:
                await asyncio.sleep(0.1)


@asynccontextmanager
async def _in_background(work: Coroutine[Any, Any, None]) -> AsyncGenerator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def _pending(queue: Queue) -> int:
    while True:
        try:
            return (await queue.admin.counts())[JobStatus.PENDING]
        except ERRORS:
            await asyncio.sleep(0.5)


async def _until_quiet(queue: Queue) -> None:
    """Wait until nothing is left to do, or nothing has happened for so long that nothing will."""
    last, since = None, time.monotonic()
    while time.monotonic() < since + STUCK_AFTER.total_seconds():
        counts = await queue.admin.counts()
        if counts[JobStatus.PENDING] + counts[JobStatus.PROCESSING] == 0:
            return
        if counts != last:
            last, since = counts, time.monotonic()
        await asyncio.sleep(0.5)


def _variables(server: Neo4jServer, web: OpenAIServer, size: Size) -> dict[str, str]:
    """The settings of all drains."""
    millisecond = timedelta(milliseconds=1)
    return {
        "NEO4J_USERNAME": server.username,
        "NEO4J_PASSWORD": server.password,
        "EMBEDDING_PROVIDER": "openai",
        "OPENAI_API_KEY": KEY,
        "OPENAI_BASE_URL": web.base_url,
        "EMBEDDING_PROFILE": "openai",
        "EMBEDDING_MODEL": MODEL,
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "EMBEDDING_RATE_LIMIT_TOKENS": "100000",
        "EMBEDDING_RATE_LIMIT_INTERVAL": "1000",
        "EMBED_JOB_RETENTION_DAYS": "7",
        "EMBED_ENTITY_TEMPLATE": SHAPE.template or "",
        "EMBED_ENTITY_RELATIONS_NAMES": ",".join(SHAPE.relations.names),
        "EMBED_RELATIONS_DELAY_MS": str(RELATIONS_DELAY // millisecond),
        "EMBED_PIECES": "nodes",
        "EMBED_PIECES_TOKENS": str(PIECES.tokens),
        "EMBED_JOB_LOCK_DURATION_MS": str(LEASE // millisecond),
        "EMBED_JOB_RECOVERY_INTERVAL": str(RECOVERY_INTERVAL // millisecond),
        "EMBED_JOB_TIMEOUT_MS": str(JOB_TIMEOUT // millisecond),
        "EMBED_JOB_MAX_ATTEMPTS": str(size.attempts),
    }


def _guard(server: Neo4jServer) -> multiprocessing.Process:
    """Start a process that stops the server, also a restarted one, when this one is killed."""
    guard = multiprocessing.Process(target=_stop_when_orphaned, args=(server.home,), daemon=True)
    guard.start()
    return guard


def _stop_when_orphaned(home: Path) -> None:
    harness = multiprocessing.parent_process()
    assert harness is not None
    harness.join()
    Neo4jServer(home).stop()
