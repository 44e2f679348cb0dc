"""For tests of programs that use a queue: one in memory, and vectors without a provider.

``InMemoryQueue`` and ``InMemoryAsyncQueue`` stand where a ``Queue`` or an ``AsyncQueue`` is wanted.
Below them is ``FakeQueue``, which keeps the same promises as the queue in Neo4j: one contract suite
runs over both, and a state machine compares the two step by step. Time only moves when the clock is
told to.
"""

from embed_pipeline.embedding.mock import MockEmbedder
from embed_pipeline.testing.clock import FakeClock
from embed_pipeline.testing.limiter import FakeRateLimiter
from embed_pipeline.testing.memory import FakeQueue
from embed_pipeline.testing.queues import InMemoryAsyncQueue, InMemoryQueue
from embed_pipeline.testing.state import FakeEntity

__all__ = [
    "FakeClock",
    "FakeEntity",
    "FakeQueue",
    "FakeRateLimiter",
    "InMemoryAsyncQueue",
    "InMemoryQueue",
    "MockEmbedder",
]
