"""A queue in memory that keeps the same promises, for tests of what uses a queue.

The contract suite runs over it and over Neo4j, and a state machine compares the two step by step.
"""

from embed_pipeline.testing.recovery import FakeRecovery
from embed_pipeline.testing.scan import FakeScan
from embed_pipeline.testing.worker_side import FakeWorkerSide


class FakeQueue(FakeWorkerSide, FakeRecovery, FakeScan):
    """The worker's side, the operator's, recovery and scan in one."""
