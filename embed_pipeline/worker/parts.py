"""What a drain is put together from."""

from dataclasses import dataclass

from embed_pipeline.domain.errors import plain_fault
from embed_pipeline.domain.ports import Counters, Embedder, JobStore, QueueSwitch, RateLimiter
from embed_pipeline.domain.text import Render
from embed_pipeline.worker.heartbeat import OpenStore
from embed_pipeline.worker.outage import ReleaseOwner
from embed_pipeline.worker.settling import FaultOf


@dataclass(frozen=True, slots=True)
class Parts:
    """What a drain works with."""

    store: JobStore
    open_store: OpenStore
    """Opens another store, for the thread of the heartbeat."""
    limiter: RateLimiter
    switch: QueueSwitch
    counters: Counters
    embedder: Embedder
    render: Render
    recipe: str
    fault_of: FaultOf = plain_fault
    release_owner: ReleaseOwner | None = None
