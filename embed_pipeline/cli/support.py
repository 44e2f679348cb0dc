"""``embed-pipeline support``: one archive for a bug report."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from embed_pipeline.cli.base import console


def support(
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", dir_okay=False, help="Where it goes."),
    ] = None,
) -> None:
    """Write one archive for a bug report: settings, versions, doctor, figures, ends of logs.

    Without secrets, texts and names of entities. Works also when Neo4j is down.
    """
    from embed_pipeline.operations.blocking import finish
    from embed_pipeline.operations.support import write_archive

    file = out or Path(f"embed-pipeline-support-{datetime.now(UTC):%Y%m%d-%H%M%S}.zip")
    with console.status("Looking"):
        names = finish(write_archive(file))
    for name in names:
        console.print(f"  {name}")
    console.print(f"✓ {file}; please look through it before you send it", soft_wrap=True)
