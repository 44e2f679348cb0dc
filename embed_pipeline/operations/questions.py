"""The user's own questions, each with its answer: how many does a model find?"""

from collections.abc import Mapping
from typing import Any, Final

import yaml

from embed_pipeline.domain.cutover import Alias, Gate, Side, questions_gate
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.operations import wiring
from embed_pipeline.operations.following import Following, settings_of
from embed_pipeline.operations.search import search_side
from embed_pipeline.paths import project_dir
from embed_pipeline.settings import Settings
from embed_pipeline.store.connection import Driver

FILE: Final = "questions.yaml"
K: Final = 5
"""A question is answered if its entity is among so many."""


def read_questions() -> dict[str, str]:
    """The questions with the keys of their answers; empty if there is no file.

    Raises:
        ConfigurationError: the file is not a list of questions.
    """
    path = project_dir() / FILE
    if not path.is_file():
        return {}
    try:
        found: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{FILE} is not YAML: {type(error).__name__}") from None
    if not isinstance(found, dict) or not all(
        isinstance(text, str) and isinstance(key, str | int) for text, key in found.items()
    ):
        raise ConfigurationError(
            f"{FILE} must have one question per line, with the key of the entity that answers it: "
            "'who wrote the first program: Ada Lovelace'"
        )
    return {text: str(key) for text, key in found.items()}


async def ask_both(
    driver: Driver, settings: Settings, alias: Alias, questions: Mapping[str, str]
) -> Gate:
    """Ask both sides every question, and compare."""
    live = await _recall(driver, settings, alias.live, questions)
    candidate = await _recall(driver, settings, alias.candidate(), questions)
    return questions_gate(live, candidate, count=len(questions), k=K)


async def _recall(
    driver: Driver, settings: Settings, side: Side, questions: Mapping[str, str]
) -> float:
    own = settings_of(settings, side)
    queue, found = wiring.queue_on(driver, own), 0
    for text, key in questions.items():
        hits = await search_side(queue, Following(own), text, limit=K)
        found += key in [hit.uid for hit in hits or ()]
    return found / len(questions)
