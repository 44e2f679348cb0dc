"""What the store has to know about one queue."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

from embed_pipeline.domain.backoff import RetryPolicy
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.job import DEFAULT_MAX_ATTEMPTS
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.domain.text import Fingerprint, fingerprint, recipe_of, render_for


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """Settings of a queue; all workers of a queue must share them.

    ``fingerprint`` must be the one of the worker's text recipe: a completion whose hash differs
    from it is taken for a change of the text. Vectors of other ``dimensions`` are refused.
    ``secrets`` are masked in stored errors.
    """

    shape: EntityShape = field(default_factory=EntityShape)
    queue: str = DEFAULT_QUEUE
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    fingerprint: Fingerprint | None = None
    dimensions: int | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    roll: Callable[[], float] = random.random

    @property
    def hash_of(self) -> Fingerprint:
        """From the text properties of an entity to the hash of its text."""
        return self.fingerprint or _fingerprint_of(self.shape)


@cache
def _fingerprint_of(shape: EntityShape) -> Fingerprint:
    return fingerprint(render_for(shape), recipe=recipe_of(shape))
