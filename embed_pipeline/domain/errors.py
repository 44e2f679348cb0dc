"""Every error that this project raises on purpose.

::

    EmbedPipelineError                  exit code 1
    ├── ConfigurationError              2  a setting is missing or not allowed
    ├── UnreachableError                3  nothing answers at the address of Neo4j
    ├── CredentialsError                4  Neo4j refuses user or password; never retried
    ├── SchemaError                     5  constraint, index or version is missing or contradicts
    ├── HistoryError                    1  there is no history, or a file of it is damaged
    ├── QueueError                      1
    │   ├── InvalidJobError                a key part is empty, too long or of the wrong type
    │   ├── JobNotFoundError               no job has this id
    │   ├── LeaseLostError                 the fence of this lease is no longer current
    │   ├── TransitionRefusedError         the table of transitions does not have this move
    │   ├── ApocMissingError               the server lacks a procedure that this needs
    │   └── CleanupFailedError             a batch of the clean-up was rolled back
    └── EmbeddingError                  1  what a failed embedding means for its job
        ├── TransientError                 later it may work: back-off, then again
        │   └── RateLimitedError           the provider asks to wait; burns no attempt
        ├── PermanentError                 this text will never work
        │   └── TooLargeError              too much for one request: split it
        └── CriticalError                  nothing will work until somebody acts

Messages say what to do next and never hold a secret or the text of an entity.
"""

from datetime import timedelta
from enum import StrEnum
from typing import ClassVar


class ErrorCategory(StrEnum):
    """What a failed embedding means for its job."""

    TRANSIENT = "TRANSIENT"
    PERMANENT = "PERMANENT"
    CRITICAL = "CRITICAL"


class EmbedPipelineError(Exception):
    """Root of the tree; ``exit_code`` is what the command line ends with."""

    exit_code: ClassVar[int] = 1


class ConfigurationError(EmbedPipelineError):
    """A setting is missing or not allowed."""

    exit_code = 2


class UnreachableError(EmbedPipelineError):
    """Nothing that speaks Bolt answers at the address."""

    exit_code = 3


class CredentialsError(EmbedPipelineError):
    """Neo4j refuses user or password.

    Never retried: three wrong passwords make Neo4j lock everybody out.
    """

    exit_code = 4


class SchemaError(EmbedPipelineError):
    """The database lacks an object the queue relies on, or has a contradicting one."""

    exit_code = 5


class HistoryError(EmbedPipelineError):
    """There is no history to read, or a file of it is damaged."""


class QueueError(EmbedPipelineError):
    """An operation on the queue could not be done."""


class InvalidJobError(QueueError):
    """A part of a job's key is empty, too long or of the wrong type."""


class JobNotFoundError(QueueError):
    """No job has this id."""


class LeaseLostError(QueueError):
    """The job has been leased again, cancelled, recovered or deleted."""


class TransitionRefusedError(QueueError):
    """The table of transitions does not have this move."""


class ApocMissingError(QueueError):
    """The server lacks an APOC procedure that the operation cannot do without."""


class CleanupFailedError(QueueError):
    """At least one batch of the clean-up was rolled back."""


class EmbeddingError(EmbedPipelineError):
    """An embedding failed; ``category`` decides what becomes of the job."""

    category: ClassVar[ErrorCategory]


class TransientError(EmbeddingError):
    """A later attempt may work."""

    category = ErrorCategory.TRANSIENT


class RateLimitedError(TransientError):
    """The provider asks to wait; jobs are given back and lose no attempt."""

    def __init__(self, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class PermanentError(EmbeddingError):
    """This text will never be embedded, however often it is tried."""

    category = ErrorCategory.PERMANENT


class TooLargeError(PermanentError):
    """The request holds too much; its parts may work."""


class CriticalError(EmbeddingError):
    """A global fault: key refused, quota gone, unknown model, wrong dimensions."""

    category = ErrorCategory.CRITICAL
