"""Every error that this project raises on purpose.

::

    EmbedPipelineError                  exit code 1
    ├── ConfigurationError              2  a setting is missing or not allowed
    ├── UnreachableError                3  nothing answers at the address of Neo4j
    ├── CredentialsError                4  Neo4j refuses user or password; never retried
    ├── SchemaError                     5  constraint, index or version is missing or contradicts
    ├── CutoverError                    1  a step of a cut-over that cannot be taken now
    ├── HistoryError                    1  there is no history, or a file of it is damaged
    ├── QueueError                      1
    │   ├── InvalidJobError                a key part is empty, too long or of the wrong type
    │   ├── CostError                      it would cost more than EMBED_CONFIRM_USD
    │   ├── JobNotFoundError               no job has this id
    │   ├── TransitionRefusedError         the table of transitions does not have this move
    │   ├── ApocMissingError               the server lacks a procedure that this needs
    │   ├── TooMuchAtOnceError             no time or memory for so many entities: ask for fewer
    │   └── CleanupFailedError             a batch of the clean-up was rolled back
    └── EmbeddingError                  1  what a failed embedding means for its job
        ├── TransientError                 later it may work: back-off, then again
        │   ├── RateLimitedError           the provider asks to wait; burns no attempt
        │   │   └── NobodyAskedError       a limit of ours held the request back
    │   │       └── BudgetSpentError   no more may be spent for now; burns no attempt
        │   └── OutageError                the provider is down: burns no attempt, breaker
        ├── PermanentError                 this text will never work
        │   └── TooLargeError              too much for one request: split it
        └── CriticalError                  nothing will work until somebody acts

Messages say what to do next and never hold a secret or the text of an entity.
"""

import re
from dataclasses import dataclass
from datetime import timedelta
from enum import StrEnum
from typing import ClassVar, Final

from embed_pipeline.domain.holds import clamped

PROBE_WORD: Final = "probe"
"""A text that no provider has a reason to refuse or to stumble over."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a provider refused a request, so that it can be compared."""

    kind: str
    """The status, and whether there is a code and a parameter."""
    words: frozenset[str]
    """Of message, code and parameter; without those of the texts, which any of them may quote, and
    without numbers."""

    def is_also(self, probe: "Refusal") -> bool:
        """Whether the probe was refused for the same reason.

        Its message may have more words: those that stand in the texts were left out of this one.
        """
        return self.kind == probe.kind and self.words <= probe.words


LONGEST: Final = 160
_VARYING: Final = (
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    # Not the apostrophe of "can't".
    (re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\"|`[^`]*`"), "<text>"),
    (re.compile(r"\b(req|chatcmpl|org|proj|sk)[-_][\w-]+"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{12,}\b"), "<id>"),
    (re.compile(r"\d+([.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def fingerprint(message: str) -> str:
    """A message without its variable parts (numbers, ids, names)."""
    text = message.strip()
    for pattern, stand_in in _VARYING:
        text = pattern.sub(stand_in, text)
    return text[:LONGEST]


class ErrorCategory(StrEnum):
    """What a failed embedding means for its job."""

    TRANSIENT = "TRANSIENT"
    PERMANENT = "PERMANENT"
    CRITICAL = "CRITICAL"


class DatabaseFault(StrEnum):
    """What a failed call to the database means for its caller."""

    AWAY = "away"
    """No answer: the same call may work when the server is back, and may have worked."""
    BUSY = "busy"
    """It answered that it cannot do this now: less at a time may work."""
    FINAL = "final"
    """It fails until something is changed."""


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


class ModelMismatchError(SchemaError):
    """The queue belongs to another model, another vector length or another recipe of the text."""


class CutoverError(EmbedPipelineError):
    """A step of a cut-over that cannot be taken now; the message says why, and what can."""


class HistoryError(EmbedPipelineError):
    """There is no history to read, or a file of it is damaged."""


class QueueError(EmbedPipelineError):
    """An operation on the queue could not be done."""


class InvalidJobError(QueueError):
    """A part of a job's key is empty, too long or of the wrong type."""


class CostError(QueueError):
    """More would be spent than EMBED_CONFIRM_USD, without a confirmation."""


class JobNotFoundError(QueueError):
    """No job has this id."""


class TransitionRefusedError(QueueError):
    """The table of transitions does not have this move."""


class ApocMissingError(QueueError):
    """The server lacks an APOC procedure that the operation cannot do without."""


class TooMuchAtOnceError(QueueError):
    """The database has no time or memory for so much in one transaction; a part of it may work.

    ``is_time``: time is what it lacks, and a busy server has little of it for anybody.
    """

    def __init__(self, message: str, *, is_time: bool = False) -> None:
        super().__init__(message)
        self.is_time = is_time


class CleanupFailedError(QueueError):
    """At least one batch of the clean-up was rolled back."""


class EmbeddingError(EmbedPipelineError):
    """An embedding failed; ``category`` decides what becomes of the job."""

    category: ClassVar[ErrorCategory]


class TransientError(EmbeddingError):
    """A later attempt may work."""

    category = ErrorCategory.TRANSIENT


class RateLimitedError(TransientError):
    """The provider asks to wait; jobs are given back and lose no attempt.

    ``asked`` is what it wants, if it said so, and ``retry_after`` as much of that as is granted.
    """

    def __init__(self, message: str, *, retry_after: timedelta | None = None) -> None:
        super().__init__(message)
        self.asked = retry_after
        self.retry_after = None if retry_after is None else clamped(retry_after)


class NobodyAskedError(RateLimitedError):
    """Not sent, because everybody waits already; it tells nothing about the provider."""


class BudgetSpentError(NobodyAskedError):
    """No more may be spent today or this month; jobs are given back and lose no attempt."""


class OutageError(TransientError):
    """The provider answers nothing, not even for a harmless word; jobs lose no attempt."""


class PermanentError(EmbeddingError):
    """This text will never be embedded, however often it is tried.

    Unless the provider refuses every text alike: ``refusal`` tells, and ``advice`` is what to do
    about it then.
    """

    category = ErrorCategory.PERMANENT
    refusal: Refusal | None = None
    advice: str = ""


class TooLargeError(PermanentError):
    """The request holds too much; its parts may work."""


class CriticalError(EmbeddingError):
    """A global fault: key refused, quota gone, unknown model, wrong dimensions, all refused."""

    category = ErrorCategory.CRITICAL


def plain_fault(error: Exception) -> DatabaseFault:
    """What an error means that no database driver has raised."""
    is_away = isinstance(error, (UnreachableError, OSError))
    return DatabaseFault.AWAY if is_away else DatabaseFault.FINAL
