"""Which jobs: the options that several commands share."""

from datetime import timedelta
from typing import Annotated

import typer

from embed_pipeline.cli.base import duration
from embed_pipeline.domain.errors import ErrorCategory
from embed_pipeline.domain.job import JobStatus

Statuses = Annotated[
    list[JobStatus] | None, typer.Option("--status", help="In this state; may be repeated.")
]
Categories = Annotated[
    list[ErrorCategory] | None,
    typer.Option("--category", case_sensitive=False, help="With such an error; may be repeated."),
]
Model = Annotated[str | None, typer.Option(help="For this embedding model.")]
Entities = Annotated[
    list[str] | None,
    typer.Option("--entity", metavar="KEY", help="Of this entity; may be repeated."),
]
OlderThan = Annotated[
    timedelta | None,
    typer.Option(parser=duration, metavar="DURATION", help="Created longer ago: 30s, 15m, 2h, 7d."),
]
Owner = Annotated[
    str | None, typer.Option(metavar="OWNER", help="Held by this worker or Dagster run.")
]
