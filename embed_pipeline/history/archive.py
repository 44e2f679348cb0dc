"""Closed days as Parquet files, in a folder or at any address that fsspec knows."""

import uuid
from dataclasses import dataclass
from datetime import date
from io import BytesIO

import pandas as pd
from pyarrow import ArrowException
from upath import UPath

from embed_pipeline.domain.errors import HistoryError


@dataclass(frozen=True, slots=True)
class Archive:
    """One file per table and day: ``<root>/<table>/2026-11-16.parquet``."""

    root: UPath

    @classmethod
    def at(cls, address: str) -> "Archive":
        """The archive at an address; opens nothing yet."""
        return cls(UPath(address))

    def days(self, table: str) -> list[date]:
        """The stored days, in order."""
        folder = self.root / table
        if not folder.exists():
            return []
        found = (_day(path.name) for path in folder.iterdir())
        return sorted(day for day in found if day is not None)

    def read(self, table: str, day: date) -> pd.DataFrame:
        """Read a day.

        Raises:
            HistoryError: the file is damaged.
        """
        file = self._file(table, day)
        try:
            return pd.read_parquet(BytesIO(file.read_bytes()))
        except (ArrowException, ValueError) as error:
            raise HistoryError(
                f"{file} cannot be read ({error}); restore it from a backup, or delete it and "
                f"materialize the day {day} of queue_metrics_history again"
            ) from None

    def write(self, table: str, day: date, frame: pd.DataFrame) -> None:
        """Write a day atomically; the same rows give the same file."""
        target = self._file(table, day)
        target.parent.mkdir(parents=True, exist_ok=True)
        # Beside it, under a name of its own: two may export the same day at once.
        half = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        try:
            half.write_bytes(frame.to_parquet(compression="zstd"))
            half.rename(target)
        except BaseException:
            half.unlink(missing_ok=True)
            raise

    def _file(self, table: str, day: date) -> UPath:
        return self.root / table / f"{day.isoformat()}.parquet"


def _day(name: str) -> date | None:
    stem = name.partition(".")[0]
    try:
        day = date.fromisoformat(stem)
    except ValueError:
        return None
    return day if name == f"{day.isoformat()}.parquet" else None
