"""The model that a queue belongs to, held by its node.

Two deployments with two models on one queue would undo each other for ever: each scan would find
the other's vectors, and enqueue every entity again.
"""

from dataclasses import asdict, dataclass
from typing import Final

from embed_pipeline.domain.audit import OperatorAction
from embed_pipeline.domain.errors import ModelMismatchError, SchemaError
from embed_pipeline.domain.identity import Identity
from embed_pipeline.store.audit import AuditNote
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.cypher.admin import READ_STATE, SET_QUEUE
from embed_pipeline.store.cypher.worker import LOCK_QUEUE
from embed_pipeline.store.database import Database, Transaction, fetch
from embed_pipeline.store.records import Properties
from embed_pipeline.store.steps import Steps, ask
from embed_pipeline.store.transactions import new_token

_PREFIX: Final = "identity_"


def read_identity(queue: Properties) -> Identity | None:
    """Read the identity from the queue node; a queue of an older version has none yet."""
    if queue.get(f"{_PREFIX}model") is None:
        return None
    return Identity(**{name: queue.get(_PREFIX + name) for name in Identity.__slots__})  # pyright: ignore[reportArgumentType]


def refuse_other(queue: Properties, config: QueueConfig) -> None:
    """Refuse to work on a queue that belongs to another model.

    Raises:
        ModelMismatchError: says which two, and what to do.
    """
    if refusal := refusal_of(queue, config):
        raise ModelMismatchError(refusal)


def checking(config: QueueConfig) -> Steps[None]:
    """The same as steps; also refuses a database without the queue."""
    records = yield from ask(READ_STATE, queue=config.queue, now=None)
    if not records:
        raise SchemaError(f"there is no queue {config.queue!r}; run 'embed-pipeline init'")
    refuse_other(records[0]["queue"], config)


async def refuse_other_in(tx: Transaction, config: QueueConfig) -> None:
    """The same including the read of the queue node."""
    if config.identity is not None:
        refuse_other(await _read_queue(tx, config), config)


@dataclass(frozen=True, slots=True)
class Neo4jIdentity:
    """Compares the queue's identity with that of these settings, and changes it on demand."""

    database: Database
    config: QueueConfig

    async def refusal(self) -> str | None:
        """Why these settings must not be used on the queue, or ``None``; changes nothing."""
        queue = await self.database.read(lambda tx: _read_queue(tx, self.config))
        return refusal_of(queue, self.config)

    async def stored(self) -> Identity | None:
        """The identity that the queue belongs to; ``None`` before its first installation."""
        return read_identity(await self.database.read(lambda tx: _read_queue(tx, self.config)))

    async def check(self) -> None:
        """Refuse settings of another identity; changes nothing.

        Raises:
            ModelMismatchError: says which two, and what to do.
        """
        await self.database.read(lambda tx: refuse_other_in(tx, self.config))

    async def claim(self) -> None:
        """Make the queue belong to this identity, if it belongs to none; the first one wins.

        Raises:
            ModelMismatchError: it belongs to another one.
        """
        await self._write(is_change=False)

    async def change(self) -> None:
        """Make the queue belong to this identity, whatever it was before."""
        await self._write(is_change=True)

    async def _write(self, *, is_change: bool) -> None:
        config, token = self.config, new_token()
        identity = config.identity
        if identity is None:
            return
        queue = await self.database.read(lambda tx: _read_queue(tx, config))
        if read_identity(queue) == identity:
            return
        said = f"to {identity.described(with_text=True)}"
        note = AuditNote(self.database, OperatorAction.CHANGE_MODEL, said, config.secrets)

        async def work(tx: Transaction) -> None:
            if not await fetch(tx, LOCK_QUEUE, queue=config.queue, token=token):
                raise SchemaError(f"there is no queue {config.queue!r}; run 'embed-pipeline init'")
            if not is_change:
                await refuse_other_in(tx, config)
            properties = {_PREFIX + name: value for name, value in asdict(identity).items()}
            await fetch(tx, SET_QUEUE, queue=config.queue, properties=properties)
            await note.write(tx, 1 if is_change else 0)

        await self.database.write(work)


def refusal_of(queue: Properties, config: QueueConfig) -> str | None:
    """Why the settings must not be used on the queue whose node was read, or ``None``."""
    if config.identity is None:
        return None
    return config.identity.refusal(config.queue, read_identity(queue))


async def _read_queue(tx: Transaction, config: QueueConfig) -> Properties:
    records = await fetch(tx, READ_STATE, queue=config.queue, now=None)
    return records[0]["queue"] if records else {}
