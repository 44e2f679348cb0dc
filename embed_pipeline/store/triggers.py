"""Jobs that appear by themselves: a trigger in the database, for clients that know no queue."""

import asyncio
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final, LiteralString

from neo4j import Record, exceptions as neo4j_errors

from embed_pipeline.domain.errors import ApocMissingError
from embed_pipeline.domain.keys import LARGEST_EXACT, MAX_KEY_LENGTH
from embed_pipeline.domain.relations import FURTHEST
from embed_pipeline.store.config import QueueConfig
from embed_pipeline.store.connection import open_session
from embed_pipeline.store.cypher import trigger as cypher
from embed_pipeline.store.database import Database
from embed_pipeline.store.naming import for_queue, for_shape, name_for

_SYSTEM: Final = "system"


@dataclass(frozen=True, slots=True)
class TriggerState:
    """``is_installed``: in this program's version; ``is_active``: the server runs it by now."""

    is_installed: bool
    is_active: bool
    is_other: bool
    """A trigger of this name exists, but with another text or model."""
    is_known: bool = True
    """False where this user may not look at triggers."""


ACTIVE: Final = TriggerState(is_installed=True, is_active=True, is_other=False)
NO_TRIGGER: Final = TriggerState(is_installed=False, is_active=False, is_other=False)


@dataclass(frozen=True, slots=True)
class Neo4jTriggers:
    """Installs, drops and inspects the trigger for one model."""

    database: Database
    config: QueueConfig
    model: str

    async def install(self, *, patience: timedelta = timedelta(seconds=90)) -> TriggerState:
        """Install or replace the trigger and wait until the server runs it.

        Raises:
            ApocMissingError: the server has no APOC, or its triggers are turned off.
        """
        await self._run(
            _SYSTEM,
            cypher.INSTALL_TRIGGER,
            database=self.database.name,
            name=self._name,
            statement=self._statement,
            params=self._params,
        )
        deadline = asyncio.get_running_loop().time() + patience.total_seconds()
        while True:
            state = await self.inspect()
            if state.is_active or asyncio.get_running_loop().time() > deadline:
                return state
            await asyncio.sleep(0.2)

    async def drop(self, *, patience: timedelta = timedelta(seconds=90)) -> bool:
        """Remove the trigger and wait until the server no longer runs it; false if it still does.

        Raises:
            ApocMissingError: the server has no APOC, or its triggers are turned off.
        """
        name = self._name
        await self._run(_SYSTEM, cypher.DROP_TRIGGER, database=self.database.name, name=name)
        deadline = asyncio.get_running_loop().time() + patience.total_seconds()
        while asyncio.get_running_loop().time() < deadline:
            if not await self._run(self.database.name, cypher.ACTIVE_TRIGGER, name=name):
                return True
            await asyncio.sleep(0.2)
        return False

    async def inspect(self) -> TriggerState:
        """Whether the trigger is installed and running; one query where all is well."""
        try:
            active = await self._run(self.database.name, cypher.ACTIVE_TRIGGER, name=self._name)
            if any(self._is_ours(record) for record in active):
                return ACTIVE
            every = await self._run(_SYSTEM, cypher.SHOW_TRIGGER, database=self.database.name)
        except ApocMissingError:
            return NO_TRIGGER
        except neo4j_errors.Forbidden:
            return replace(NO_TRIGGER, is_known=False)
        installed = [record for record in every if record["name"] == self._name]
        is_installed = any(self._is_ours(record) for record in installed)
        return TriggerState(
            is_installed=is_installed,
            is_active=False,
            is_other=bool(installed) and not is_installed,
        )

    @property
    def _name(self) -> str:
        return name_for(cypher.TRIGGER_NAME, self.config.queue)

    @property
    def _statement(self) -> LiteralString:
        shape = self.config.shape
        text = cypher.TRIGGER.replace("%ends%", cypher.ENDS if shape.has_relations else "")
        return for_queue(for_shape(text, shape), self.config.queue)

    @property
    def _params(self) -> dict[str, Any]:
        shape = self.config.shape
        relations = shape.relations
        neighbours = {
            "watched_relations": [relations.word, shape.valid_to],
            "relation_types": list(relations.types),
            "most_relations": FURTHEST,
        }
        return {
            **(neighbours if shape.has_relations else {}),
            "label": shape.label,
            "watched": [*shape.text, shape.version, shape.valid_to, *filter(None, [shape.order])],
            "model": self.model,
            "max_attempts": self.config.max_attempts,
            "longest": MAX_KEY_LENGTH,
            "exact": LARGEST_EXACT,
        }

    def _is_ours(self, record: Record) -> bool:
        return record["query"] == self._statement and record["params"] == self._params

    async def _run(self, database: str, text: LiteralString, /, **parameters: Any) -> list[Record]:
        try:
            async with open_session(self.database.driver, database) as session:
                result = await session.run(text, parameters)
                return [record async for record in result]
        except neo4j_errors.ClientError as error:
            is_missing = "ProcedureNotFound" in (error.code or "")
            if is_missing or "apoc.trigger.enabled" in (error.message or ""):
                raise ApocMissingError(
                    "triggers need APOC core with apoc.trigger.enabled=true in apoc.conf; "
                    "without them the reconcile scan finds new and changed entities"
                ) from error
            raise
