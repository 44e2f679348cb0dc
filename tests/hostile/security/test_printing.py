"""Names that were made to deceive: none of them makes a second line or obeys as a command (T19)."""

import io
import json
import logging
import re

import pytest
from rich.console import Console

from embed_pipeline.cli import base as cli_base
from embed_pipeline.cli.base import print_json, safe, table
from embed_pipeline.defs.checks import evaluation
from embed_pipeline.domain.checks import OPEN
from embed_pipeline.domain.health import Verdict
from embed_pipeline.domain.redact import one_line, printable
from embed_pipeline.logs import OneLineFormatter

HOSTILE = [
    pytest.param("ada\n2026-11-16 00:00:00 embed_pipeline ERROR forged", id="line break"),
    pytest.param("ada\r\nforged", id="carriage return"),
    pytest.param("ada\u2028forged\u2029forged\x85forged\x0bforged", id="other line breaks"),
    pytest.param("\x1b[2J\x1b[31mada\x1b]0;title\x07", id="ANSI"),
    pytest.param("\x9b31mada", id="one-byte ANSI"),
    pytest.param("ada\u202egnp.exe", id="turned round"),
    pytest.param("ada\x00\x08\x7f", id="control characters"),
    pytest.param("ada\ud800", id="half a character"),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_record_of_the_log_is_one_plain_line(name: str) -> None:
    formatter = OneLineFormatter()
    record = logging.LogRecord("embed_pipeline", 30, "f", 1, "owner=%s", (name,), None)

    assert formatter.format(record).isprintable()


def test_a_traceback_in_the_log_is_one_line_without_secrets() -> None:
    formatter = OneLineFormatter()
    try:
        raise ValueError("password=hunter2hunter2\nERROR forged")
    except ValueError as error:
        kind = (ValueError, error, error.__traceback__)
    record = logging.LogRecord("embed_pipeline", 40, "f", 1, "it broke", (), kind)

    line = formatter.format(record)

    assert line.isprintable()
    assert "hunter2" not in line
    assert "ValueError" in line


@pytest.mark.parametrize("name", HOSTILE)
def test_an_escaped_text_says_what_it_was(name: str) -> None:
    assert one_line(name).isprintable()
    assert printable(name).replace("\n", "").isprintable()


@pytest.mark.parametrize("name", [*HOSTILE, "[red]ada[/]", "[link=https://evil.example]ada[/link]"])
def test_a_table_shows_a_name_literally(name: str) -> None:
    screen = io.StringIO()
    rows = table("NAME")
    rows.add_row(safe(name))

    Console(
        file=screen, force_terminal=True, width=200, color_system="truecolor", emoji=False
    ).print(rows)

    shown = re.sub(r"\x1b\[[0-9;]*m", "", screen.getvalue().partition("\n")[2])
    assert shown.replace("\n", "").isprintable()
    if name.startswith("["):
        assert shown.rstrip().endswith(name)


@pytest.mark.parametrize("text", [":bomb: ada", "[bold]ada", r"ada\[red]"])
def test_the_consoles_take_no_name_for_markup(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    cli_base.console.print(safe(text), soft_wrap=True)
    cli_base.complaints.print(safe(text), soft_wrap=True)

    captured = capsys.readouterr()
    assert captured.out == captured.err == f"{text}\n"


@pytest.mark.parametrize("name", HOSTILE)
def test_json_is_plain_and_says_the_same(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"entity_uid": name})

    shown = capsys.readouterr().out
    assert shown.replace("\n", "").isprintable()
    assert json.loads(shown) == {"entity_uid": name}


def test_a_check_shows_what_a_provider_said_without_pictures_links_and_tags() -> None:
    said = "breaker open: ![](https://evil.example/p.png) [log in](https://evil.example) <b>x</b>"

    shown = evaluation(Verdict(OPEN, passed=False, message=said), "default").description or ""

    assert not re.search(r"(?<!\\)[\[\]<>`]", shown)
    assert shown.replace("\\", "") == said
