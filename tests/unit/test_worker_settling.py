"""What becomes of leases whose time runs out while somebody is looking at them."""

from collections.abc import Sequence

from embed_pipeline.domain.embedding import PreparedText
from embed_pipeline.domain.job import Lease, LeasedJob
from embed_pipeline.domain.results import Beat
from embed_pipeline.worker.batching import Item
from embed_pipeline.worker.holdings import Holdings
from embed_pipeline.worker.report import DrainReport
from embed_pipeline.worker.settling import Settler
from tests.fakes import FakeQueue

LEASE = Lease(job_id="j", entity_uid="e", model="m", version=1, owner="run-1", fence=1)
ITEM = Item(
    LeasedJob(LEASE, attempts=1, max_attempts=3),
    PreparedText("text", tokens=1, tokens_in=1),
    "hash",
)


class SlowQueue(FakeQueue):
    """Takes so long to answer that leases expire meanwhile, which it does not know yet."""

    seconds = 0.0

    async def check(self, leases: Sequence[Lease]) -> Beat:
        self.seconds += 10
        return Beat(held=tuple(leases))


async def test_a_lease_that_expires_while_the_database_is_asked_gets_no_more_heartbeats() -> None:
    store, report = SlowQueue(), DrainReport(owner="run-1", model="m")
    holdings = Holdings(clock=lambda: store.seconds)
    holdings.add([LEASE], deadline=5)

    held = await Settler(store, holdings, report).still_held([ITEM])

    assert held == []
    assert holdings.all() == []
    assert report.lost == 1
