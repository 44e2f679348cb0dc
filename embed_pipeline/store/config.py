"""What the store has to know about one queue."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache
from typing import Any

from embed_pipeline.domain.embedding import TextSize
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.identity import Identity
from embed_pipeline.domain.job import DEFAULT_MAX_ATTEMPTS
from embed_pipeline.domain.lifecycle import RetryPolicy
from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.domain.relations import RELATIONS_DELAY
from embed_pipeline.domain.text import Hasher, hasher, recipe_of, render_for, text_hash


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """Settings of a queue; all workers of a queue must share them.

    The text of the ``shape`` must be that of the worker: a completion whose hash differs from it is
    taken for a change of the text. Vectors of other ``dimensions`` are refused. A queue of another
    ``identity`` is not worked on; without one, nobody asks. ``secrets`` are masked in
    stored errors.
    """

    shape: EntityShape = field(default_factory=EntityShape)
    queue: str = DEFAULT_QUEUE
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    dimensions: int | None = None
    identity: Identity | None = None
    keeps_foreign: bool = False
    """Vectors that others wrote are left alone."""
    keeps_old: bool = False
    """Outdated versions of entities keep their vectors."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    relations_delay: timedelta = RELATIONS_DELAY
    """So long an entity waits of which only the neighbours have changed."""
    measure: Callable[[Mapping[str, Any]], TextSize] | None = None
    """Says what an entity's text takes of a request while it is scanned; for a plan."""
    roll: Callable[[], float] = random.random

    @property
    def hash_of(self) -> Hasher:
        """From the text properties of an entity to the hash of its text."""
        return _hasher_of(self.shape)

    @property
    def hash_of_nothing(self) -> str:
        """The hash of every blank text."""
        return text_hash("", recipe=recipe_of(self.shape))


@cache
def _hasher_of(shape: EntityShape) -> Hasher:
    return hasher(render_for(shape), recipe=recipe_of(shape))
