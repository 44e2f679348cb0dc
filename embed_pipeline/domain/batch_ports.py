"""What the work on batches needs of a provider, of the store, and of the budget."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Protocol

from embed_pipeline.domain.batch import Batch, BatchAnswer, ProviderBatch, SentJob
from embed_pipeline.domain.embedding import PreparedText


class BatchProvider(Protocol):
    """The provider's side of batches.

    What fails otherwise than by a refusal is an ``EmbeddingError``, and an ``OutageError`` where
    nobody answers.
    """

    def line(self, custom_id: str, text: PreparedText) -> bytes:
        """A line of the input file."""
        ...

    async def upload(self, path: Path, *, name: str) -> str:
        """Upload the input file; its id. Raises ``BatchRefusedError`` where that is certain."""
        ...

    async def create(self, file: str, metadata: Mapping[str, str]) -> ProviderBatch:
        """Create a batch, once; raises ``BatchRefusedError`` only if none was created."""
        ...

    async def find(self, metadata: Mapping[str, str]) -> ProviderBatch | None:
        """The batch with this metadata, if the provider lists it."""
        ...

    async def read(self, id_: str) -> ProviderBatch | None:
        """The state of a batch; None if the provider does not know it (yet)."""
        ...

    async def cancel(self, id_: str) -> None:
        """Let the provider stop; what it has done is charged. One that is over is no error."""
        ...

    def answers(self, file: str) -> AsyncGenerator[BatchAnswer]:
        """The lines of an answer, as they arrive. Raises ``AnswerCutError``."""
        ...

    async def delete(self, file: str) -> None:
        """Remove a file; one that is gone is no error."""
        ...

    async def close(self) -> None:
        """Close its connections."""
        ...


class BatchStore(Protocol):
    """Keeps the records of batches."""

    async def begin(self, id_: str, *, model: str, holder: str) -> None:
        """Record a batch before anything is leased for it."""
        ...

    async def every(self) -> list[Batch]:
        """All batches, oldest first."""
        ...

    async def now(self) -> datetime:
        """The clock by which leases and turns are timed."""
        ...

    async def take(self, id_: str, *, holder: str) -> Batch | None:
        """Take a turn to work on a batch; None while another worker has it, or if it is gone."""
        ...

    async def write(self, id_: str, *, holder: str, **properties: Any) -> bool:
        """Update a batch whose turn is still ours, and extend the turn."""
        ...

    async def settle(self, id_: str, *, holder: str, counts: Mapping[str, int]) -> bool:
        """Record that every line of a batch was judged and count its costs, both or neither."""
        ...

    async def drop(self, id_: str, *, holder: str) -> bool:
        """Delete the record of a batch whose turn is still ours."""
        ...

    async def let_go(self, id_: str, *, holder: str) -> None:
        """End the turn at once."""
        ...

    async def mark_sent(self, sent: Sequence[SentJob]) -> None:
        """Record on the jobs what is sent for them."""
        ...

    async def hold(self, batch: str, until: datetime) -> int:
        """Extend all leases of a batch until then; returns how many."""
        ...

    async def sent_jobs(self, batch: str, *, model: str) -> list[SentJob]:
        """The jobs that a batch still holds."""
        ...


class Purse(Protocol):
    """Charges batches to the budget; the provider's rate limits for batches are its own."""

    async def spend(self, tokens: int) -> str | None:
        """Charge so many tokens at the batch price, or say why not."""
        ...

    async def correct(self, *, counted: int, charged: int) -> None:
        """Replace a charge by the actual cost."""
        ...
