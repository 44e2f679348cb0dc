"""A small Cypher prompt, since the server comes without ``cypher-shell``."""

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Final, TextIO

from neo4j import Driver, EagerResult, GraphDatabase, NotificationMinimumSeverity, Query
from neo4j.exceptions import DriverError, Neo4jError
from neo4j.graph import Node, Relationship
from neo4j.time import Date, DateTime, Duration, Time
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from embed_pipeline.domain.redact import printable

PROMPT: Final = "neo4j> "
HELP: Final = "Statements end with ';'. :quit or Ctrl-D ends, Ctrl-C drops what was typed."
QUIT: Final = frozenset({":quit", ":exit", ":q"})
QUOTES: Final = "'\"`"
COMMENT: Final = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def shell(uri: str, auth: tuple[str, str], database: str = "neo4j") -> int:
    """Read statements from the terminal or a pipe and show their results.

    Returns the exit code: 1 if a statement of a pipe failed (the rest is not run), else 0.
    """
    interactive = sys.stdin.isatty()
    console = Console(emoji=False)
    if interactive:
        # Importing is enough: ``input`` then edits lines and remembers them.
        import readline  # noqa: F401

        console.print(HELP, style="dim")
    lines = _typed_lines(console) if interactive else _piped_lines(sys.stdin)
    quiet = NotificationMinimumSeverity.OFF
    with GraphDatabase.driver(uri, auth=auth, notifications_min_severity=quiet) as driver:
        for statement in statements(lines):
            if not _run(driver, statement, database, console) and not interactive:
                return 1
    return 0


def statements(lines: Iterator[str | None]) -> Iterator[str]:
    """Cut lines into statements at each ``;`` outside of quotes and comments.

    None among the lines drops what was read so far. The last statement may lack its ``;``.
    """
    text = ""
    for line in lines:
        if line is None:
            text = ""
            continue
        if not text.strip() and line.strip().lower() in QUIT:
            return
        text += line + "\n"
        while (end := _end_of_statement(text)) is not None:
            statement, text = text[:end].strip(), text[end + 1 :]
            if statement:
                yield statement
    if COMMENT.sub("", text).strip():
        yield text.strip()


def _end_of_statement(text: str) -> int | None:
    position = 0
    while position < len(text):
        character = text[position]
        if character == ";":
            return position
        if character in QUOTES:
            position = _end_of_quote(text, position)
        elif text.startswith("//", position):
            position = _find(text, "\n", position)
        elif text.startswith("/*", position):
            position = _find(text, "*/", position + 2)
        position += 1
    return None


def _end_of_quote(text: str, start: int) -> int:
    position = start + 1
    while position < len(text) and text[position] != text[start]:
        # A name in backticks knows no backslash.
        position += 2 if text[position] == "\\" and text[start] != "`" else 1
    return position


def _find(text: str, what: str, start: int) -> int:
    found = text.find(what, start)
    return len(text) if found < 0 else found + len(what) - 1


def _typed_lines(console: Console) -> Iterator[str | None]:
    while True:
        try:
            yield input(PROMPT)
        except KeyboardInterrupt:
            console.print()
            yield None
        except EOFError:
            # Half a statement may mean the opposite of the whole one: it is not run.
            console.print()
            yield None
            return


def _piped_lines(stream: TextIO) -> Iterator[str]:
    for line in stream:
        yield line.rstrip("\n")


def _run(driver: Driver, statement: str, database: str, console: Console) -> bool:
    try:
        with driver.session(database=database) as session:
            # Auto-commit, since CALL … IN TRANSACTIONS works in nothing else. The text comes
            # from the person at the prompt, who may run anything: no injection to guard against.
            result = session.run(Query(statement)).to_eager_result()  # pyright: ignore[reportArgumentType]
    except (Neo4jError, DriverError) as error:
        console.print(_in_one_line(error), style="red", markup=False, soft_wrap=True)
        return False
    except KeyboardInterrupt:
        console.print("interrupted", style="red")
        return False
    _show(result, console)
    return True


def _show(result: EagerResult, console: Console) -> None:
    if result.keys:
        table = Table(*(_safe(key) for key in result.keys))
        for record in result.records:
            table.add_row(*(_safe(_as_text(value)) for value in record.values()))
        console.print(table)
    counters = {
        name: count
        for name, count in vars(result.summary.counters).items()
        if count and isinstance(count, int) and not isinstance(count, bool)
    }
    changes = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in counters.items())
    rows = f"{len(result.records)} row{'' if len(result.records) == 1 else 's'}"
    console.print(f"{rows}{f'; {changes}' if changes else ''}", style="dim")


def _safe(text: str) -> str:
    """Strip control characters: the graph's content is untrusted."""
    return escape(printable(text))


def _as_text(value: object) -> str:
    match value:
        case str():
            return value
        case Node():
            return f"({''.join(f':{label}' for label in sorted(value.labels))} {_as_map(value)})"
        case Relationship():
            return f"[:{value.type} {_as_map(value)}]"
        case list():
            return f"[{', '.join(map(_as_text, value))}]"
        case dict():
            return _as_map(value)
        case Date() | DateTime() | Duration() | Time():
            return value.iso_format()
        case None:
            return "null"
        case _:
            return str(value)


def _as_map(value: Mapping[str, object]) -> str:
    return f"{{{', '.join(f'{key}: {_as_text(item)}' for key, item in value.items())}}}"


def _in_one_line(error: Neo4jError | DriverError) -> str:
    text = getattr(error, "message", None) or str(error) or type(error).__name__
    return printable(" ".join(text.split()))
