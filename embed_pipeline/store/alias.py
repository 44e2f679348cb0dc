"""The alias: one node that says which side is live, changed under its lock only."""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from typing import Any, Final

from embed_pipeline.domain.cutover import Alias, IndexUse, Phase, Side
from embed_pipeline.domain.errors import CutoverError
from embed_pipeline.store.cypher import alias as cypher
from embed_pipeline.store.database import Database, Transaction, fetch, moment, to_ms
from embed_pipeline.store.naming import for_queue
from embed_pipeline.store.records import Properties
from embed_pipeline.store.transactions import new_token

OTHER: Final = "other_"


async def read_alias(database: Database, queue: str) -> Alias | None:
    """The alias that a queue belongs to; most belong to none."""
    return await database.read(lambda tx: alias_in(tx, queue))


async def alias_in(tx: Transaction, queue: str) -> Alias | None:
    """The same inside a transaction."""
    records = await fetch(tx, cypher.READ_ALIAS, queue=queue)
    return _to_alias(records[0]["alias"]) if records else None


@dataclass(frozen=True, slots=True)
class Neo4jAlias:
    """Changes one alias. Every change compares the epoch it was decided by, and may be repeated."""

    database: Database
    name: str

    async def prepare(self) -> None:
        """Create the unique constraint: schema and data cannot change in one transaction."""
        async with self.database.session() as session:
            await (await session.run(cypher.ALIAS_CONSTRAINT)).consume()

    async def begin(self, live: Side, candidate: Side | None) -> Alias:
        """Name the live side, and put a candidate beside it.

        Raises:
            CutoverError: another candidate is there already.
        """
        await self.prepare()

        def change(now: Alias | None, at: datetime) -> Alias:
            if now is None:
                phase = Phase.FILLING if candidate else None
                return Alias(self.name, live, 1, at, candidate, phase)
            if candidate is None or now.other == candidate:
                return now
            if now.other is not None:
                raise CutoverError(
                    f"a cut-over to {now.other if now.phase is not Phase.LIVE else now.live} is "
                    f"under way ({now.phase}); end it first: embed-pipeline cutover finish"
                )
            return replace(now, other=candidate, phase=Phase.FILLING)

        return await self._change(change)

    async def flip(self, seen: Alias, phase: Phase) -> Alias:
        """Make the other side the live one.

        Raises:
            CutoverError: the alias has been changed since it was ``seen``.
        """
        wanted, other = seen.other, seen.live

        def change(now: Alias | None, at: datetime) -> Alias:
            if now is None or wanted is None:
                raise CutoverError(f"there is no cut-over of {self.name!r} any more")
            if now.epoch == seen.epoch + 1 and (now.live, now.phase) == (wanted, phase):
                return now  # This flip was committed, and its answer was lost.
            if (now.epoch, now.phase, now.other) != (seen.epoch, seen.phase, wanted):
                raise CutoverError(
                    f"the alias is at epoch {now.epoch} ({now.phase}), it was {seen.epoch} "
                    f"({seen.phase}) a moment ago: it has been changed meanwhile; look again: "
                    "embed-pipeline cutover status"
                )
            return Alias(self.name, wanted, now.epoch + 1, at, other, phase)

        return await self._change(change)

    async def finishing(self, seen: Alias, *, takes: str | None = None) -> Alias:
        """Record that the other side is being removed; from here on there is no rollback.

        ``takes``: the live index gets this name first. Whoever repeats it need not say so again.
        """

        def change(now: Alias | None, _at: datetime) -> Alias:
            if now is None or (now.epoch, now.other) != (seen.epoch, seen.other):
                raise CutoverError("the alias has been changed meanwhile; look again")
            return replace(now, phase=Phase.FINISHING, takes=takes or now.takes)

        return await self._change(change)

    async def has_taken(self, seen: Alias) -> Alias:
        """Record that the live index has taken the name over; clients look again."""

        def change(now: Alias | None, _at: datetime) -> Alias:
            if (
                now is None
                or now.other is None
                or (now.epoch, now.takes)
                != (
                    seen.epoch,
                    seen.takes,
                )
            ):
                raise CutoverError("the alias has been changed meanwhile; look again")
            live, other = (
                replace(now.live, index=now.takes or now.live.index),
                replace(now.other, index=now.live.index),
            )
            return replace(now, live=live, other=other, epoch=now.epoch + 1, takes=None)

        return await self._change(change)

    async def finished(self, removed: Side) -> Alias:
        """Forget the side that has been removed."""

        def change(now: Alias | None, _at: datetime) -> Alias:
            if now is None:
                raise CutoverError(f"there is no cut-over of {self.name!r} any more")
            if now.phase is not Phase.FINISHING or now.other != removed:
                return now
            return replace(now, other=None, phase=None)

        return await self._change(change)

    async def _change(self, change: Callable[[Alias | None, datetime], Alias]) -> Alias:
        token = new_token()

        async def work(tx: Transaction) -> Alias:
            await fetch(tx, cypher.LOCK_ALIAS, name=self.name, token=token)
            [found] = await fetch(
                tx, cypher.READ_LOCKED_ALIAS, name=self.name, now=self.database.now_ms
            )
            before = _to_alias(found["alias"]) if "epoch" in found["alias"] else None
            after = change(before, moment(found["now"]))
            if after != before:
                await fetch(
                    tx, cypher.WRITE_ALIAS, name=self.name, properties=_to_properties(after)
                )
            return after

        return await self.database.write(work)


async def read_use(database: Database, side: Side) -> tuple[IndexUse | None, datetime]:
    """When an index of a side was last searched, and the server's time."""
    pieces = for_queue("EmbedPiece", side.queue)

    async def work(tx: Transaction) -> tuple[IndexUse | None, datetime]:
        found = await fetch(tx, cypher.INDEX_USE, index=side.index, pieces=pieces)
        [now] = await fetch(tx, cypher.READ_NOW, now=database.now_ms)
        use = IndexUse(found[0]["name"], moment(found[0]["at"])) if found else None
        return use, moment(now["now"])

    return await database.read(work)


def _to_alias(properties: Properties) -> Alias:
    other = _to_side(properties, OTHER) if properties.get("other_queue") else None
    phase = properties.get("phase")
    return Alias(
        name=properties["name"],
        live=_to_side(properties),
        epoch=properties["epoch"],
        since=moment(properties["since"]),
        other=other,
        phase=Phase(phase) if phase else None,
        takes=properties.get("takes"),
    )


def _to_side(properties: Properties, prefix: str = "") -> Side:
    return Side(**{name: properties.get(prefix + name) for name in Side.__slots__})  # pyright: ignore[reportArgumentType]


def _to_properties(alias: Alias) -> dict[str, Any]:
    other = asdict(alias.other) if alias.other else {}
    return {
        "name": alias.name,
        "epoch": alias.epoch,
        "since": to_ms(alias.since),
        "phase": alias.phase.value if alias.phase else None,
        "takes": alias.takes,
        **asdict(alias.live),
        **{OTHER + name: value for name, value in other.items()},
    }
