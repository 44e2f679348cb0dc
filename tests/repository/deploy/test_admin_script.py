"""Commands with the settings of the units: the same variables, and nothing in them is run."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from tests.repository.deploy.files import DEPLOY, SYSTEMD

SAYS_ITS_ENVIRONMENT = f"""#!{sys.executable}
import json, os, sys
print(json.dumps([dict(os.environ), sys.argv[1:], os.getcwd()]))
"""


@pytest.fixture(scope="module")
def with_settings() -> ModuleType:
    file = SYSTEMD / "with_settings.py"
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # What a shell would run.
        ("X=$(touch evil)", {"X": "$(touch evil)"}),
        ("X=`touch evil`", {"X": "`touch evil`"}),
        ('X="$(touch evil)"', {"X": "$(touch evil)"}),
        ("X=a; touch evil", {"X": "a; touch evil"}),
        ("X=a && touch evil", {"X": "a && touch evil"}),
        ("X=$HOME ${HOME}", {"X": "$HOME ${HOME}"}),
        ("touch evil", {}),
        ("export X=1", {}),
        # Words and quotes, as systemd.exec(5) has them.
        ("X=one two", {"X": "one two"}),
        ("  X = one  ", {"X": "one"}),
        ("X=", {"X": ""}),
        ('X="one  two "', {"X": "one  two "}),
        ("X='$(id) \"two\" '", {"X": '$(id) "two" '}),
        ("X=\"a\"b 'c'", {"X": "ab 'c'"}),
        ('X=a"b"', {"X": 'a"b"'}),
        (r'X="\"\\\$\`\n"', {"X": '"\\$`\\n'}),
        (r"X=a\"b\\c\ ", {"X": 'a"b\\c '}),
        ("X=a\\\nb", {"X": "ab"}),
        ('X="a\\\nb\nc"', {"X": "ab\nc"}),
        ("X=a#b", {"X": "a#b"}),
        ("X=a=b", {"X": "a=b"}),
        # Lines.
        ("# X=1\n;Y=2\n\nZ=3", {"Z": "3"}),
        ("X=1\r\nY=2\r\n", {"X": "1", "Y": "2"}),
        ("X=1\nX=2", {"X": "2"}),
        ("1X=1\nX-Y=2", {}),
        ("X='unfinished", {"X": "unfinished"}),
    ],
)
def test_settings_are_read_as_systemd_reads_them(
    with_settings: ModuleType, text: str, expected: dict[str, str]
) -> None:
    assert with_settings.parse(text) == expected


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    """A machine with the script, settings and secrets; the command says what it was given."""
    project = tmp_path / "opt/embed-pipeline"
    (project / ".venv/bin").mkdir(parents=True)
    (project / ".venv/bin/python").symlink_to(sys.executable)
    program = project / ".venv/bin/embed-pipeline"
    program.write_text(SAYS_ITS_ENVIRONMENT)
    program.chmod(0o755)
    shutil.copytree(DEPLOY, project / "deploy")
    script = project / "deploy/systemd/embed-pipeline-admin.sh"
    text = script.read_text()
    for folder in ("/opt/embed-pipeline", "/etc/embed-pipeline", "/var/lib/embed-pipeline"):
        text = text.replace(folder, f"{tmp_path}{folder}")
    user = "--reuid=embed-pipeline --regid=embed-pipeline --init-groups"
    assert user in text
    same = f"--reuid={os.getuid()} --regid={os.getgid()} --keep-groups"
    script.write_text(text.replace(user, same))
    secrets = tmp_path / "etc/embed-pipeline/secrets"
    secrets.mkdir(parents=True)
    for name in ("neo4j_password", "openai_api_key", "postgres_password"):
        (secrets / name).write_text(f"secret {name}")
    (tmp_path / "var/lib/embed-pipeline").mkdir(parents=True)
    return tmp_path


def admin(machine: Path, *arguments: str, **environment: str) -> tuple[dict[str, str], list, str]:
    script = machine / "opt/embed-pipeline/deploy/systemd/embed-pipeline-admin.sh"
    given = {"PATH": os.environ["PATH"], **environment}
    result = subprocess.run(
        [str(script), *arguments], env=given, capture_output=True, text=True, check=False
    )
    assert result.returncode == 0, result.stderr
    variables, received, folder = json.loads(result.stdout)
    return variables, received, folder


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv of util-linux")
def test_nothing_of_the_settings_is_run(machine: Path) -> None:
    evil = machine / "evil"
    hostile = f"X=$(touch {evil})\nY=`touch {evil}`\nZ=a; touch {evil}\ntouch {evil}\n"
    (machine / "etc/embed-pipeline/settings.env").write_text(hostile + "EMBED_QUEUE=default\n")
    unit = machine / "etc/embed-pipeline/embed-pipeline-code@4001.env"
    unit.write_text(f"EMBED_QUEUE=acme\nW=$(touch {evil})\n")

    variables, arguments, folder = admin(
        machine, "jobs", "list", "$(id)", UNIT="embed-pipeline-code@4001"
    )

    assert not evil.exists()
    assert variables["X"] == f"$(touch {evil})"
    assert variables["W"] == f"$(touch {evil})"
    assert variables["EMBED_QUEUE"] == "acme"
    assert variables["OPENAI_API_KEY"] == "secret openai_api_key"
    assert arguments == ["jobs", "list", "$(id)"]
    assert folder == str(machine / "var/lib/embed-pipeline")


@pytest.mark.skipif(not shutil.which("setpriv"), reason="needs setpriv of util-linux")
def test_the_settings_of_the_example_arrive(machine: Path) -> None:
    shutil.copy(SYSTEMD / "settings.env", machine / "etc/embed-pipeline")

    variables, _, _ = admin(machine, "status")

    assert variables["NEO4J_URI"] == "neo4j+s://neo4j.example.org:7687"
    assert variables["EMBED_JOB_RETENTION_DAYS"] == "14"
    assert variables["NEO4J_PASSWORD"] == "secret neo4j_password"
