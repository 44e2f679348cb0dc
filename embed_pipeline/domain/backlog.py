"""How much work waits."""

from dataclasses import dataclass
from datetime import datetime

from embed_pipeline.domain.metrics import QueueState


@dataclass(frozen=True, slots=True)
class Backlog:
    """What a drain for one model would find; costs the same for any length of the queue."""

    at: datetime
    due: int
    """Jobs of the model that could be leased now, counted up to a limit."""
    is_more: bool
    """There are more than ``due``."""
    pending: int
    """Of all models, due or not."""
    processing: int
    """Of all models."""
    next_due: datetime | None
    """When the next job of the model is to be tried again that is not due yet."""
    state: QueueState
