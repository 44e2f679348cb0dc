"""Keep every entity of a Neo4j knowledge graph embedded, with Dagster or from a program.

``from embed_pipeline import Queue`` is the front door (docs/api.md). Each name is imported when it
is asked for, so that it costs a program nothing it does not use: neither Dagster nor a provider.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from embed_pipeline.api.async_queue import AsyncQueue
    from embed_pipeline.api.sync_queue import Queue
    from embed_pipeline.defs.build import build_defs
    from embed_pipeline.defs.component import EmbedPipelineComponent
    from embed_pipeline.domain.entity import EntityShape
    from embed_pipeline.domain.errors import (
        ConfigurationError,
        CostError,
        CredentialsError,
        CriticalError,
        EmbeddingError,
        EmbedPipelineError,
        ErrorCategory,
        InvalidJobError,
        JobNotFoundError,
        ModelMismatchError,
        PermanentError,
        QueueError,
        RateLimitedError,
        SchemaError,
        TransientError,
        TransitionRefusedError,
        UnreachableError,
    )
    from embed_pipeline.domain.explanation import Explanation
    from embed_pipeline.domain.identity import Embedding
    from embed_pipeline.domain.job import Job, JobFilter, JobStatus, NewJob
    from embed_pipeline.domain.lifecycle import EnqueueOutcome
    from embed_pipeline.domain.metrics import QueueMetrics
    from embed_pipeline.domain.pieces import Pieces
    from embed_pipeline.domain.relations import Relations
    from embed_pipeline.domain.results import BulkReport, Cleanup, Hit, RecoveredJob
    from embed_pipeline.embedding.own import PythonProvider
    from embed_pipeline.settings.embeddings import chosen_embedding, load_embeddings
    from embed_pipeline.settings.load import load_settings
    from embed_pipeline.settings.operations import Settings
    from embed_pipeline.worker.report import DrainReport

_HOMES = {
    "api.async_queue": ("AsyncQueue",),
    "api.sync_queue": ("Queue",),
    "defs.build": ("build_defs",),
    "defs.component": ("EmbedPipelineComponent",),
    "domain.entity": ("EntityShape",),
    "domain.errors": (
        "ConfigurationError",
        "CostError",
        "CredentialsError",
        "CriticalError",
        "EmbedPipelineError",
        "EmbeddingError",
        "ErrorCategory",
        "InvalidJobError",
        "JobNotFoundError",
        "ModelMismatchError",
        "PermanentError",
        "QueueError",
        "RateLimitedError",
        "SchemaError",
        "TransientError",
        "TransitionRefusedError",
        "UnreachableError",
    ),
    "domain.explanation": ("Explanation",),
    "domain.identity": ("Embedding",),
    "domain.job": (
        "JobFilter",
        "Job",
        "JobStatus",
        "NewJob",
    ),
    "domain.lifecycle": ("EnqueueOutcome",),
    "domain.metrics": ("QueueMetrics",),
    "domain.pieces": ("Pieces",),
    "domain.relations": ("Relations",),
    "domain.results": (
        "BulkReport",
        "Cleanup",
        "Hit",
        "RecoveredJob",
    ),
    "embedding.own": ("PythonProvider",),
    "settings.embeddings": ("chosen_embedding", "load_embeddings"),
    "settings.load": ("load_settings",),
    "settings.operations": ("Settings",),
    "worker.report": ("DrainReport",),
}
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AsyncQueue",
    "BulkReport",
    "Cleanup",
    "ConfigurationError",
    "CostError",
    "CredentialsError",
    "CriticalError",
    "DrainReport",
    "EmbedPipelineComponent",
    "EmbedPipelineError",
    "Embedding",
    "EmbeddingError",
    "EnqueueOutcome",
    "EntityShape",
    "ErrorCategory",
    "Explanation",
    "Hit",
    "InvalidJobError",
    "Job",
    "JobFilter",
    "JobNotFoundError",
    "JobStatus",
    "ModelMismatchError",
    "NewJob",
    "PermanentError",
    "Pieces",
    "PythonProvider",
    "Queue",
    "QueueError",
    "QueueMetrics",
    "RateLimitedError",
    "RecoveredJob",
    "Relations",
    "SchemaError",
    "Settings",
    "TransientError",
    "TransitionRefusedError",
    "UnreachableError",
    "build_defs",
    "chosen_embedding",
    "load_embeddings",
    "load_settings",
]


if not TYPE_CHECKING:  # which would take every name for one of the door's

    def __getattr__(name: str) -> Any:
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return [*globals(), *__all__]
