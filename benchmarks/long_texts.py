"""Item 4: a few enormous texts among many: what they cost the scan and the drain of the others."""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any, Final, LiteralString

from benchmarks.contestants import UNLIMITED, same_store
from benchmarks.memory import MEBIBYTE, environment, peak
from benchmarks.site import DIMENSIONS, MODEL, PoolEmbedder, Site, on_site
from benchmarks.table import Line, at_least, at_most
from embed_pipeline.domain.embedding import Embedded, PreparedText
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import NewJob
from embed_pipeline.domain.text import recipe_of, render_for
from embed_pipeline.store.connection import Connection
from embed_pipeline.worker.engine import Drain
from embed_pipeline.worker.options import Parts
from tests.support.project import ROOT

SHORT: Final = 20_000
LONG: Final = 80
ROUNDS: Final = 2
CHARACTERS: Final = 10_000_000
WORD: Final = "lorem ipsum dolor "
SCANS: Final = 4
NOT_HELD_UP: Final = at_least(0.6)
"""Short texts that wait for the long ones would have a tenth; single rounds had 0.52 to 1.49."""
ALLOWED: Final = 400
"""MB of a process that scans, as the code server does."""
NOBODY: Final = "http://127.0.0.1:9/v1"
CREATE_LONG: Final[LiteralString] = """
CREATE (:Entity {name: $uid, entityType: 'long', observations: [$text], version: 1})
"""

DELETE_LONG: Final[LiteralString] = """
MATCH (e:Entity {entityType: 'long'}) CALL (e) { DETACH DELETE e } IN TRANSACTIONS OF 5 ROWS
"""


def lines(connection: Connection) -> Iterator[Line]:
    """Drain with and without them, in turn; then scan again and again."""
    rates: dict[int, list[float]] = {0: [], LONG: []}
    for _ in range(ROUNDS):
        for count in rates:
            on_site(connection, _measure_drain, SHORT, count, rates[count])
    without, among = (sum(each) / len(each) for each in rates.values())
    yield Line(
        4,
        f"{SHORT:,} short texts drained with {LONG} of 10 MB in front of them, against without",
        f"{among:,.0f}/s against {without:,.0f}/s",
        [one / other for one, other in zip(rates[LONG], rates[0], strict=True)],
        NOT_HELD_UP,
    )
    found = _scans(connection)
    on_site(connection, _delete_long)
    yield Line(
        4,
        f"most memory of a process after {SCANS} scans of these, against after one",
        f"{found['last'] / MEBIBYTE:.0f} MiB against {found['first'] / MEBIBYTE:.0f} MiB;"
        f" {found['loaded'] / MEBIBYTE:.0f} before; {found['seconds']:.1f} s each,"
        f" {found['oversized']} named",
        [found["last"] / (ALLOWED * 1e6)],
        at_most(1),
    )


class _Watched(PoolEmbedder):
    """Notes when the last short text was asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.short_at = 0.0

    async def embed(self, texts: Sequence[PreparedText]) -> Embedded:
        if any(len(text.text) < 1_000 for text in texts):
            self.short_at = time.perf_counter()
        return await super().embed(texts)


async def _delete_long(site: Site) -> None:
    await site.run(DELETE_LONG)


async def _measure_drain(site: Site, short: int, long: int, rates: list[float]) -> None:
    # More of them at once would be too much for the server to delete.
    await site.run(DELETE_LONG)
    await site.prepare(short, has_index=False)
    text = (WORD * (CHARACTERS // len(WORD) + 1))[:CHARACTERS]
    names = [f"a{number}" for number in range(long)]
    for uid in names:
        await site.run(CREATE_LONG, uid=uid, text=f"{uid} {text}")
    # In front of all others.
    await site.queue.admin.enqueue([NewJob(uid, MODEL) for uid in names])
    for first in range(0, short, 2_000):
        last = min(first + 2_000, short)
        await site.queue.admin.enqueue([NewJob(f"e{n}", MODEL) for n in range(first, last)])
    embedder, shape = _Watched(), EntityShape()
    parts = Parts(
        store=site.queue.jobs,
        open_store=same_store(site),
        limiter=site.queue.limiter(UNLIMITED),
        switch=site.queue.switch,
        counters=site.queue.admin,
        embedder=embedder,
        render=render_for(shape),
        recipe=recipe_of(shape),
    )
    began = time.perf_counter()
    report = await Drain(parts, owner="benchmark").run()
    if report.completed != short + long:
        raise RuntimeError(f"{report.completed} of {short + long} jobs were completed")
    rates.append(short / (embedder.short_at - began))


def _scans(connection: Connection) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.long_texts"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment(connection, NOBODY, DIMENSIONS),
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def _scanned() -> dict[str, Any]:
    """In the process that scans."""
    import embed_pipeline.definitions  # noqa: F401 - as the code server has
    from embed_pipeline.operations import wiring
    from embed_pipeline.operations.scan import Scan
    from embed_pipeline.settings import load_settings
    from embed_pipeline.store.connection import open_driver

    settings = load_settings()
    found: dict[str, Any] = {"loaded": peak()}

    async def scan() -> Scan:
        async with open_driver(wiring.connection(settings)) as driver:
            queue = wiring.queue_on(driver, settings)
            begun = Scan.begin(queue.reconciler(settings.model))
            await begun.go_on(most=timedelta(hours=1))
            return begun

    began = time.perf_counter()
    for number in range(SCANS):
        last = asyncio.run(scan())
        if number == 0:
            found["first"] = peak()
        found["oversized"] = last.report.oversized
    return {**found, "last": peak(), "seconds": (time.perf_counter() - began) / SCANS}


if __name__ == "__main__":
    sys.stdout.write(json.dumps(_scanned()) + "\n")
