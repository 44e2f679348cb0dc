"""What is checked about a queue, as data; ``health`` judges."""

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Severity(StrEnum):
    """How bad it is when a check fails."""

    WARN = "warn"
    """Should be looked at today."""
    ERROR = "error"
    """A promise is broken, or will be soon."""


class Subject(StrEnum):
    """What a check is about."""

    QUEUE = "queue"
    EMBEDDINGS = "embeddings"
    INDEX = "index"


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that is checked."""

    name: str
    subject: Subject
    severity: Severity
    description: str


SCHEMA: Final = Check(
    "schema_present",
    Subject.QUEUE,
    Severity.ERROR,
    "Constraints and indexes are there. Without them jobs are given out twice.",
)
OPEN: Final = Check(
    "queue_open",
    Subject.QUEUE,
    Severity.ERROR,
    "The queue gives out jobs: it is not paused, and no global fault has opened the breaker.",
)
HOLD: Final = Check(
    "no_long_hold",
    Subject.QUEUE,
    Severity.WARN,
    "The provider has not told everybody who shares the rate limit to wait for over two minutes.",
)
BUDGET: Final = Check(
    "budget_left",
    Subject.QUEUE,
    Severity.WARN,
    "Less than 80 % is used of what EMBED_BUDGET_… allows per day and month.",
)
LEASES: Final = Check(
    "no_forgotten_leases",
    Subject.QUEUE,
    Severity.ERROR,
    "No lease expired more than two recovery intervals ago, and every batch is asked about: no job "
    "is stuck.",
)
RECOVERIES: Final = Check(
    "recoveries_ran",
    Subject.QUEUE,
    Severity.ERROR,
    "Of the last two recoveries of expired leases at least one has worked.",
)
ACCOUNTED: Final = Check(
    "jobs_accounted",
    Subject.QUEUE,
    Severity.ERROR,
    "Every job node is counted in the state that it says: nothing that others wrote is left out.",
)
OLDEST: Final = Check(
    "oldest_pending_in_time",
    Subject.QUEUE,
    Severity.WARN,
    "The oldest job that could be done waits no longer than EMBED_OBJECTIVE_AGE_MS.",
)
FAILED: Final = Check(
    "few_failed_jobs",
    Subject.QUEUE,
    Severity.WARN,
    "At most EMBED_OBJECTIVE_FAILED_PERCENT of the ended jobs have failed.",
)
RETENTION: Final = Check(
    "retention_honoured",
    Subject.QUEUE,
    Severity.ERROR,
    "No ended job is older than EMBED_JOB_RETENTION_DAYS and the night of the next clean-up.",
)
SCANNED: Final = Check(
    "scan_ran",
    Subject.EMBEDDINGS,
    Severity.ERROR,
    "A scan of all entities has ended within two intervals and as long as two take.",
)
COVERED: Final = Check(
    "coverage_above_floor",
    Subject.EMBEDDINGS,
    Severity.WARN,
    "At least EMBED_OBJECTIVE_COVERAGE_PERCENT of the entities have a vector of today's text.",
)
UNIFORM: Final = Check(
    "dimensions_uniform",
    Subject.EMBEDDINGS,
    Severity.ERROR,
    "All vectors have the length of the model. The index leaves out the others in silence.",
)
REAL: Final = Check(
    "no_mock_vectors",
    Subject.EMBEDDINGS,
    Severity.WARN,
    "No vector was made by a mock model, which knows no meaning.",
)
FITTING: Final = Check(
    "settings_fit_data",
    Subject.EMBEDDINGS,
    Severity.WARN,
    "Label, key and text of the settings are those of the nodes: there are entities, they can be "
    "embedded, and their texts are neither empty nor all the same.",
)
UNIQUE: Final = Check(
    "keys_unique",
    Subject.EMBEDDINGS,
    Severity.WARN,
    "No two current entities have the same key. The scan finds them on its way.",
)
QUALITY: Final = Check(
    "vectors_follow_the_graph",
    Subject.EMBEDDINGS,
    Severity.ERROR,
    "Joined entities are nearer in meaning than others, as they used to be; measured once a day.",
)
INDEX: Final = Check(
    "vector_index_online",
    Subject.INDEX,
    Severity.ERROR,
    "The vector index is there, online, and takes vectors of the model's length.",
)

CHECKS: Final = (
    SCHEMA,
    OPEN,
    HOLD,
    BUDGET,
    LEASES,
    RECOVERIES,
    ACCOUNTED,
    OLDEST,
    FAILED,
    RETENTION,
    SCANNED,
    COVERED,
    UNIFORM,
    REAL,
    FITTING,
    UNIQUE,
    QUALITY,
    INDEX,
)
