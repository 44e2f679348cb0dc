"""The table of mutants fits the code; whether they are killed takes ``make mutants``."""

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


def script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "scripts" / "mutants.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


MUTANTS = script().read_mutants()
each = pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)


@each
def test_the_text_to_be_broken_is_there_exactly_once(mutant) -> None:
    assert mutant.applies()
    assert mutant.new != mutant.old


@each
def test_the_test_that_must_notice_exists(mutant) -> None:
    file, _, function = mutant.test.partition("::")

    assert f"def {function.partition('[')[0]}(" in (ROOT / file).read_text(encoding="utf-8")


def test_every_mutant_has_a_name_of_its_own() -> None:
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS)


def test_at_least_ten_mutants_are_left_to_the_state_machine() -> None:
    assert sum(mutant.level == "stateful" for mutant in MUTANTS) >= 10
