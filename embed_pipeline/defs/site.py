"""What the definitions are made for: the embeddings of one code location, and the names of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import dagster as dg

from embed_pipeline.domain.queue_name import DEFAULT_QUEUE
from embed_pipeline.settings import Settings

EMBEDDING: Final = "embedding"
"""The field of a run config that says which embedding is meant, where there are several."""
EMBEDDING_TAG: Final = "embed_pipeline/embedding"


def name_in(queue: str, plain: str) -> str:
    """A name that is unique to the queue."""
    return plain if queue == DEFAULT_QUEUE else f"{queue}_{plain}"


def group_in(queue: str, plain: str) -> str:
    """The asset group: a named embedding has its own."""
    return plain if queue == DEFAULT_QUEUE else queue


@dataclass(frozen=True, slots=True)
class Site:
    """The embeddings of a code location; each has the name of its queue."""

    embeddings: tuple[Settings, ...]
    upstream: Mapping[str, Sequence[dg.AssetKey]] = field(default_factory=dict)
    """The assets that write the nodes of an embedding, by its name."""

    @property
    def first(self) -> Settings:
        """The first embedding; its deployment-wide settings hold for all."""
        return self.embeddings[0]

    @property
    def is_shared(self) -> bool:
        """Whether jobs and sensors serve several embeddings."""
        return len(self.embeddings) > 1

    @property
    def queues(self) -> tuple[str, ...]:
        return tuple(settings.queue for settings in self.embeddings)

    def name(self, plain: str) -> str:
        """The name of a job, op, sensor, schedule or resource.

        That of a second queue says whose it is: both may be merged into one project.
        """
        return plain if self.is_shared else name_in(self.first.queue, plain)

    @property
    def neo4j(self) -> str:
        """The key of the Neo4j resource; does not collide with another project's."""
        return self.name("embed_neo4j")

    @property
    def io_manager(self) -> str:
        """The key of the I/O manager."""
        return self.name("embed_outputs")

    def chosen(self, settings: Settings) -> dict[str, str]:
        """The run config entry that selects the embedding."""
        return {EMBEDDING: settings.queue} if self.is_shared else {}

    def tags(self, settings: Settings) -> dict[str, str]:
        """The run tags that name the embedding."""
        return {EMBEDDING_TAG: settings.queue} if self.is_shared else {}

    def run_config(
        self, op: str, settings: Settings, config: Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """The run config of a job for its only op."""
        given = {**self.chosen(settings), **(config or {})}
        return {"ops": {self.name(op): {"config": given}}} if given else {}
