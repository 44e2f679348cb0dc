"""What must be true of the files themselves."""

import re
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer.main
from dotenv import dotenv_values

from embed_pipeline.cli.app import app
from embed_pipeline.domain.models import Provider
from embed_pipeline.settings import load_settings
from embed_pipeline.settings.load import variables
from embed_pipeline.settings.types import written

ROOT = Path(__file__).parents[2]

# Written in pieces, so that this file does not find itself.
MACHINE = re.compile(
    "|".join(
        [
            r"(?<![\w.])/(ro" + r"ot|home/\w+|Users/\w+|wo" + r"rk)/",
            r"https?://[^\s\"']*/(sim" + r"ple|mav" + r"en2)\b",
            r"--(extra-)?index-" + r"url\b(?! into)",
            "pythonhosted" + r"\.org",
            r"repo1?\.mav" + r"en\.",
        ]
    )
)


def tracked_files() -> list[str]:
    listing = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listing.stdout.split("\0") if name and (ROOT / name).is_file()]


def test_no_path_and_no_host_of_a_machine_is_in_the_repository() -> None:
    found = []
    for name in tracked_files():
        try:
            text = (ROOT / name).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        found += [f"{name}: {match[0]}" for match in MACHINE.finditer(text)]

    assert found == []


def test_every_locked_package_has_hashes_and_no_address() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    packages = re.findall(r"^[a-z0-9].*?(?=^[a-z0-9]|\Z)", lock, re.MULTILINE | re.DOTALL)

    assert len(packages) > 100
    assert all("==" in package and "--hash=sha256:" in package for package in packages)
    assert "://" not in lock


@pytest.mark.parametrize("variable", list(variables()))
def test_the_example_lists_the_setting_with_its_purpose_and_default(variable: str) -> None:
    field = variables()[variable]

    lines = (ROOT / ".env.example").read_text().splitlines()
    at = next(i for i, line in enumerate(lines) if line.lstrip("#").startswith(f"{variable}="))

    assert lines[at - 1].startswith(f"# {field.description}")
    if variable == "EMBEDDING_PROVIDER":
        # The one choice of the first hour; the default stays what the requirements say.
        assert lines[at] == "EMBEDDING_PROVIDER=${EMBEDDING_PROVIDER:-local}"
    elif not field.is_required():
        default = "" if field.default is None else written(field.default)
        assert lines[at] == f"#{variable}={default}"


def test_the_example_lists_nothing_else() -> None:
    text = (ROOT / ".env.example").read_text()

    assert re.findall(r"^#?([A-Z0-9_]+)=", text, re.MULTILINE) == list(variables())


def test_the_example_is_all_that_a_start_needs() -> None:
    settings = load_settings(ROOT / ".env.example")

    assert settings.retention_days == 14
    assert settings.provider is Provider.LOCAL


def test_the_environment_wins_over_the_example_in_dagster_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Dagster lets .env win over the environment; only what the file says can prevent that.
    own = {"EMBEDDING_PROVIDER": "auto", "EMBED_JOB_RETENTION_DAYS": "31"}
    for name, value in own.items():
        monkeypatch.setenv(name, value)

    assert dotenv_values(ROOT / ".env.example") == own


def test_the_readme_is_short_enough_to_be_read() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def test_every_command_of_the_readme_can_be_pasted() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lines = re.findall(r"^ {4}(\S*embed-pipeline) (.*?)(?:  .*)?$", readme, re.MULTILINE)

    known: dict[str, object] = getattr(typer.main.get_command(app), "commands", {})

    assert len(lines) > 10
    for program, arguments in lines:
        assert program == ".venv/bin/embed-pipeline"
        assert arguments.split()[0] in known


def test_every_command_that_a_page_or_a_message_names_is_there() -> None:
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    named = [
        (page.name, words)
        for page in (*pages, *(ROOT / "embed_pipeline").rglob("*.py"))
        for words in commands_in(page)
    ]

    assert len(named) > 100
    assert [(page, *words) for page, words in named if is_unknown(words)] == []


def commands_in(page: Path) -> Iterator[list[str]]:
    """What stands behind embed-pipeline, as code on a page or quoted in a message."""
    quotes = r"'([^'\n]+)'" if page.suffix == ".py" else r"`([^`\n]+)`|^(?: {4})?([^`\n]+)$"
    for code in re.finditer(quotes, page.read_text(encoding="utf-8"), re.MULTILINE):
        line = next(filter(None, code.groups()))
        if found := re.match(r"(?:\$ )?(?:\S*/)?embed-pipeline ([^#|;&<>]+)", line):
            yield found[1].partition("  ")[0].split()


def is_unknown(words: list[str]) -> bool:
    """Whether the command line has no such command, or the command no such option."""
    command: object = typer.main.get_command(app)
    options = {"--help", *options_of(command)}
    left = iter(words)
    for word in left:
        if word.startswith("--"):
            if word.partition("=")[0].rstrip(".,:)") not in options:
                return True
            if word == "--embedding":
                next(left, None)
        elif (below := getattr(command, "commands", None)) and re.fullmatch(
            "[a-z][a-z0-9-]*", word
        ):
            if word not in below:
                return True
            command = below[word]
            options |= options_of(command)
    return False


def options_of(command: object) -> set[str]:
    parameters = getattr(command, "params", ())
    return {name for known in parameters for name in (*known.opts, *known.secondary_opts)}


def test_m63_ci_runs_the_same_command() -> None:
    ci = (ROOT / ".ci" / "run").read_text(encoding="utf-8")

    assert ci.rstrip().endswith("exec make check")


def test_m63_one_command_runs_all_tests(pytestconfig: pytest.Config) -> None:
    # What make would do; the environment of the test is as good as a new one.
    would = subprocess.run(
        ["make", "-n", "-o", ".venv/.ready", "check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout

    assert [
        tool for tool in ("ruff check", "ruff format --check", "pyright") if tool not in would
    ] == []
    [tests] = [line for line in would.splitlines() if "-m pytest" in line]
    assert not re.search(r"tests/|-k|-m \w+ |--ignore|--deselect", tests.partition("pytest")[2])
    assert pytestconfig.getini("testpaths") == ["tests"]


def test_m68_no_other_coordinator_is_needed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = {re.split(r"[<>=\[;]", line)[0].strip() for line in project["dependencies"]}

    assert not wanted & {"redis", "celery", "kombu", "pika", "psycopg2", "kazoo", "etcd3"}
    assert "neo4j" in wanted


def test_the_walk_through_the_code_names_at_most_25_places_and_each_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    walk = text.partition("### From a write to a data frame")[2].partition("\nA new transition")[0]

    places = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+\.py)`", walk))

    assert 15 <= len(places) <= 25
    assert [place for place in places if not (ROOT / "embed_pipeline" / place).exists()] == []
