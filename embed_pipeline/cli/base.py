"""What the commands share: a queue to work with, and how values are read and shown.

Settings, driver and provider are imported where a command uses them, here and in all modules of
the command line: help and mistyped options should not wait for what takes most of a second.
"""

from __future__ import annotations

import dataclasses
import json
import os
import pwd
import re
import sys
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeVar

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from embed_pipeline.domain.audit import Operator
from embed_pipeline.domain.errors import EmbedPipelineError
from embed_pipeline.domain.redact import printable
from embed_pipeline.domain.words import span

if TYPE_CHECKING:
    from embed_pipeline.domain.rate_window import Grant
    from embed_pipeline.settings import Settings
    from embed_pipeline.store.connection import Driver
    from embed_pipeline.store.queue import Queue

Result = TypeVar("Result")
PIPE_WIDTH: Final = 1_000
"""A pipe has no width; a table that was cut at 80 would lose ids."""
UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
COMMAND: Final = re.compile(r"(?<![\w./-])embed-pipeline(?= [a-z-])")
LONGEST_DURATION: Final = timedelta(days=36_500)

console = Console(highlight=False, emoji=False, width=None if sys.stdout.isatty() else PIPE_WIDTH)
complaints = Console(stderr=True, highlight=False, emoji=False)

AsJson = Annotated[
    bool, typer.Option("--json", help="Machine-readable: times in UTC, durations in seconds.")
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]


class _Choice:
    """The value of ``--embedding``; one process runs one command."""

    embedding: str | None = None


def choose(embedding: str | None) -> None:
    """Select an embedding for this process; ``None`` selects the only one."""
    _Choice.embedding = embedding


def chosen_settings() -> Settings:
    """The settings of the selected embedding.

    Raises:
        ConfigurationError: a setting is wrong, or it is not said which embedding is meant.
    """
    from embed_pipeline.settings.embeddings import chosen_embedding

    return chosen_embedding(_Choice.embedding)


def each_chosen() -> tuple[Settings, ...]:
    """The settings of the selected embedding, or of all of them."""
    from embed_pipeline.settings.embeddings import load_embeddings

    return load_embeddings() if _Choice.embedding is None else (chosen_settings(),)


def with_database(
    work: Callable[[Driver, Settings], Awaitable[Result]], settings: Settings | None = None
) -> Result:
    """Run ``work`` with a driver and the settings; its errors become messages."""
    from embed_pipeline.operations import wiring
    from embed_pipeline.operations.blocking import finish
    from embed_pipeline.store.connection import connected

    as_set = settings or chosen_settings()

    async def run() -> Result:
        async with connected(wiring.connection(as_set)) as driver:
            return await work(driver, as_set)

    return finish(run())


def with_queue(
    work: Callable[[Queue, Settings], Awaitable[Result]],
    settings: Settings | None = None,
    *,
    for_vectors: bool = False,
) -> Result:
    """Run ``work`` with the live queue; ``for_vectors`` checks the index against the model.

    What it changes is recorded as done by the user of the command line.
    """
    from embed_pipeline.operations.blocking import finish
    from embed_pipeline.operations.following import opened_live

    as_set = settings or chosen_settings()

    async def run() -> Result:
        async with opened_live(as_set, for_drain=for_vectors) as (queue, live):
            return await work(queue.acting_as(operator()), live)

    return finish(run())


def warn_about(settings: Settings) -> None:
    """Print warnings about settings that are allowed but probably not intended."""
    from embed_pipeline.settings import warnings

    for text in warnings(settings):
        complaints.print(f"[bold yellow]! {safe(pasteable(text))}[/]", soft_wrap=True)


def is_screen() -> bool:
    """Whether the output goes to an interactive terminal."""
    return sys.stdout.isatty() and not console.is_dumb_terminal


def confirm(question: str, *, yes: bool) -> None:
    """Ask a person; a script must pass ``--yes``."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise EmbedPipelineError(
            f"{question} There is no terminal to ask on: repeat with --yes to do it, or "
            "with --preview to look only"
        )
    typer.confirm(question, abort=True)


def operator() -> Operator:
    """The user of this process, and the one behind sudo."""
    number = os.getuid()
    try:
        # Not getpass: it believes $LOGNAME, which anybody can set.
        user = pwd.getpwuid(number).pw_name
    except KeyError:  # a container whose user has no name
        user = f"user {number}"
    sudo = os.environ.get("SUDO_USER") if number == 0 else None
    name = f"{sudo} (sudo)" if sudo and sudo != user else user
    return Operator(f"{name} on the command line")


def duration(text: str) -> timedelta:
    """Read ``30s``, ``15m``, ``2h`` or ``7d``."""
    match = re.fullmatch(r"0*([1-9][0-9]{0,5})([smhd])", text.strip(), re.ASCII)
    length = timedelta(**{UNITS[match[2]]: int(match[1])}) if match else None
    if length is None or length > LONGEST_DURATION:
        raise typer.BadParameter(f"{text!r} is not a duration such as 30s, 15m, 2h or 7d")
    return length


def at(moment: datetime | None) -> str:
    """Format a time of the server."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC" if moment else ""


def pasteable(message: str) -> str:
    """The same, with commands called as this program was."""
    from embed_pipeline.paths import program

    name = program()
    return COMMAND.sub(lambda _: name, message)


def complain(error: Exception) -> None:
    """Print an error, without secrets, and with commands that can be pasted."""
    from embed_pipeline.settings.secrets import without_secrets

    said = safe(pasteable(without_secrets(str(error))))
    complaints.print(f"[red]✗[/] {said}", soft_wrap=True)


def safe(text: object) -> str:
    """Escape markup and control characters in untrusted text."""
    return escape(printable(str(text)))


def say_waiting(grant: Grant) -> None:
    """Report that the rate limit delays a request, and which worker asked for the pause."""
    from embed_pipeline.domain.holds import HOW_TO_END

    why = f": {safe(grant.hold)}; {HOW_TO_END}" if grant.hold else ""
    complaints.print(f"▸ Waiting {span(grant.wait)} for the rate limit{why}", soft_wrap=True)


def table(*headers: str) -> Table:
    """A table in the style of all commands; without headers two plain columns."""
    made = Table(box=None, show_header=bool(headers), padding=(0, 2, 0, 0), header_style="dim")
    for header in headers:
        made.add_column(header, overflow="fold")
    return made


def show(rows: Table) -> None:
    """Print a table; without trailing blanks when the output is a pipe."""
    if console.is_terminal:
        console.print(rows)
        return
    with console.capture() as captured:
        console.print(rows)
    typer.echo("\n".join(line.rstrip() for line in captured.get().splitlines()))


def print_json(value: object) -> None:
    """Print a value for machines; never wrapped, never coloured."""
    text = json.dumps(as_plain(value), ensure_ascii=False, indent=2)
    # JSON itself escapes only some of what a terminal obeys.
    typer.echo("".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text))


def as_plain(value: Any) -> Any:
    """Dataclasses as objects, times as ISO 8601, durations as seconds."""
    match value:
        case datetime():
            return value.isoformat()
        case timedelta():
            return value.total_seconds()
        case Mapping():
            return {str(key): as_plain(item) for key, item in value.items()}
        case str():
            return str(value)
        case list() | tuple():
            return [as_plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {f.name: as_plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    return value
