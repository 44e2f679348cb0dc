"""What an error says to run can be pasted where the program was called by a path."""

import re
import sys
from pathlib import Path

import pytest

from embed_pipeline.cli import app
from embed_pipeline.cli.base import pasteable
from embed_pipeline.domain.errors import SchemaError
from embed_pipeline.paths import program

SAID = "run 'embed-pipeline init', or embed-pipeline cutover start; pip install 'embed-pipeline[x]'"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The program in a virtual environment of the current folder, which is not activated."""
    file = tmp_path / ".venv" / "bin" / "embed-pipeline"
    file.parent.mkdir(parents=True)
    file.write_text("")
    file.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "/usr/bin")
    return file


@pytest.mark.parametrize("typed", ["./.venv/bin/embed-pipeline", ".venv/bin/embed-pipeline", ""])
def test_what_is_to_be_run_is_called_as_the_program_was(
    installed: Path, monkeypatch: pytest.MonkeyPatch, typed: str
) -> None:
    monkeypatch.setattr(sys, "argv", [typed or str(installed), "status"])
    name = typed or ".venv/bin/embed-pipeline"

    assert pasteable(SAID) == re.sub("embed-pipeline(?= )", name, SAID)
    assert pasteable(pasteable(SAID)) == pasteable(SAID)


def test_a_program_on_the_path_has_its_name(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(installed.parent))
    monkeypatch.setattr(sys, "argv", [str(installed), "status"])

    assert pasteable(SAID) == SAID


def test_a_program_that_was_called_otherwise_is_that_beside_its_interpreter(
    installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["-c"])
    monkeypatch.setattr(sys, "executable", str(installed.with_name("python")))

    assert program() == ".venv/bin/embed-pipeline"


def test_an_error_of_the_command_line_can_be_pasted(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(_: object) -> None:
        raise SchemaError("there is no vector index; run 'embed-pipeline init'")

    monkeypatch.setattr(sys, "argv", [str(installed), "status"])
    monkeypatch.setattr(app, "app", fail)
    monkeypatch.setattr(app, "load_libraries_alone", lambda: None)

    with pytest.raises(SystemExit):
        app.main()

    assert "run '.venv/bin/embed-pipeline init'" in capsys.readouterr().err
