"""Read files of settings as systemd reads an EnvironmentFile, then become another program.

    python -I with_settings.py FILE… -- PROGRAM ARGUMENT…

A shell that sources such a file would run what stands in it, and read quotes, ``$`` and ``;``
otherwise than the units do. This follows ``parse_env_file`` of systemd, state by state.
"""

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

NEWLINE: Final = "\n\r"
WHITESPACE: Final = " \t" + NEWLINE
ESCAPED: Final = '"\\`$'
"""What a backslash protects inside double quotes; before anything else it stays."""
NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


def parse(text: str) -> dict[str, str]:
    """The variables of a file; a line that names none is left out, as systemd does."""
    return {name: value for name, value in _pairs(text) if NAME.fullmatch(name)}


def _pairs(text: str) -> Iterator[tuple[str, str]]:
    state, key, value = "before key", "", ""
    # Whitespace at the end of a value counts only if it was quoted or escaped.
    protected = 0

    for c in text:
        match state:
            case "before key":
                if c in "#;":
                    state = "comment"
                elif c not in WHITESPACE:
                    state, key, value, protected = "key", c, "", 0
            case "key":
                if c in NEWLINE:
                    state = "before key"
                elif c == "=":
                    state = "before value"
                else:
                    key += c
            case "before value" | "value" if c in NEWLINE:
                yield key.rstrip(WHITESPACE), _trimmed(value, protected)
                state = "before key"
            case "before value" if c in "'\"":
                state = "single" if c == "'" else "double"
            case "before value" | "value" if c == "\\":
                state = "escape"
            case "before value" if c in WHITESPACE:
                pass
            case "before value" | "value":
                state, value = "value", value + c
            case "escape":
                state = "value"
                if c not in NEWLINE:
                    value += c
                protected = len(value)
            case "single" | "double" if c == ("'" if state == "single" else '"'):
                state, protected = "before value", len(value)
            case "double" if c == "\\":
                state = "double escape"
            case "single" | "double":
                value += c
            case "double escape":
                state = "double"
                if c != "\n":
                    value += c if c in ESCAPED else f"\\{c}"
            case "comment" if c == "\\":
                state = "comment escape"
            case "comment" | "comment escape":
                state = "before key" if c in NEWLINE else "comment"
    if state not in ("before key", "key", "comment", "comment escape"):
        yield key.rstrip(WHITESPACE), _trimmed(value, protected)


def _trimmed(value: str, protected: int) -> str:
    return value[:protected] + value[protected:].rstrip(WHITESPACE)


def main(arguments: list[str]) -> None:
    """Become the program, with the variables of the files; later files win."""
    split = arguments.index("--")
    environment = dict(os.environ)
    for file in arguments[:split]:
        try:
            environment |= parse(Path(file).read_text(encoding="utf-8"))
        except OSError as error:
            sys.exit(f"with_settings: cannot read {file}: {error.strerror}")
        except UnicodeDecodeError:
            sys.exit(f"with_settings: {file} is no text in UTF-8")
    program = arguments[split + 1 :]
    os.execvpe(program[0], program, environment)  # noqa: S606 - that is what it is for


if __name__ == "__main__":
    main(sys.argv[1:])
