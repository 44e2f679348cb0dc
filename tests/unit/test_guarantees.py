"""The page of guarantees: every promise leads to tests that exist."""

import re
import tomllib
from pathlib import Path

from embed_pipeline.worker.batch_parts import Step
from tests.support.project import ROOT

PAGE = ROOT / "docs" / "guarantees.md"
TEXT = PAGE.read_text(encoding="utf-8")
LINKS = re.findall(r"\[([^]]+)\]\(([^)#]+)\)", TEXT)


def section(title: str) -> str:
    [found] = re.findall(rf"^## {title}$(.*?)(?=^## |\Z)", TEXT, re.MULTILINE | re.DOTALL)
    return found


def paragraphs(title: str) -> list[str]:
    return [part for part in section(title).strip().split("\n\n") if part.startswith("**")]


def has_test(path: Path, name: str) -> bool:
    return (
        re.search(rf"^ *(async )?def {name}\(", path.read_text(encoding="utf-8"), re.M) is not None
    )


def test_every_link_leads_to_a_file() -> None:
    assert [to for _, to in LINKS if not (PAGE.parent / to).exists()] == []


def test_every_test_that_is_named_is_in_its_file() -> None:
    named = [(name, PAGE.parent / to) for name, to in LINKS if name.startswith("test_")]

    assert len(named) > 100
    assert [name for name, path in named if not has_test(path, name)] == []


def test_every_line_about_another_program_leads_to_its_test() -> None:
    page = ROOT / "docs" / "integrations.md"
    rows = [line for line in page.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    found = [re.findall(r"\[(test_\w+)\]\(([^)]+)\)", row) for row in rows[1:]]

    assert len(found) >= 5
    assert all(found)
    assert all(has_test(page.parent / to, name) for links in found for name, to in links)


def test_every_block_of_settings_for_another_program_is_run_by_a_test() -> None:
    page = (ROOT / "docs" / "integrations.md").read_text(encoding="utf-8")
    programs = re.findall(r"^### (.+)\n\n```sh$", page, re.MULTILINE)
    clients = ROOT / "tests" / "clients"
    tests = "".join(path.read_text(encoding="utf-8") for path in clients.glob("test_*.py"))

    assert len(programs) >= 5
    assert [name for name in programs if f'documented("{name}")' not in tests] == []


def test_every_step_of_a_batch_has_its_row_in_the_table_of_crashes() -> None:
    page = (ROOT / "docs" / "batch.md").read_text(encoding="utf-8")
    [table] = re.findall(r"^\| Killed after .*\n(?:\|.*\n)+", page, re.MULTILINE)
    rows = [line.split("|")[1].strip() for line in table.splitlines()[2:]]

    assert rows == [step.value for step in Step]


def test_every_invariant_leads_to_a_test() -> None:
    found = {part.split(".")[0].strip("*"): part for part in paragraphs("Invariants")}

    assert list(found) == [f"I{number}" for number in range(1, 21)]
    assert [name for name, part in found.items() if "](../tests/" not in part] == []


def test_every_promise_of_the_readme_is_here_and_leads_to_a_test() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    [listed] = re.findall(r"^## Guarantees\n(.*?)^\*\*", readme, re.MULTILINE | re.DOTALL)

    promises = paragraphs("Promises")

    assert len(promises) >= len(re.findall(r"^- ", listed, re.MULTILINE))
    assert [part for part in promises if "](../tests/" not in part] == []


def test_every_broken_guard_is_listed_with_its_test() -> None:
    mutants = tomllib.loads((ROOT / "tests" / "mutants.toml").read_text(encoding="utf-8"))["mutant"]

    rows = section("Broken on purpose")

    assert len(mutants) >= 10
    for mutant in mutants:
        test = re.search(r"::(\w+)", mutant["test"])
        assert test is not None
        row = f"| {mutant['name']} | {mutant['invariant']} |"
        assert any(line.startswith(row) and test[1] in line for line in rows.splitlines()), row
