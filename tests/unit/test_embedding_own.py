"""A provider that the user wrote: what of it is understood, and what is said when it is not."""

from collections.abc import Sequence

import pytest

from embed_pipeline import ConfigurationError, PermanentError, PythonProvider, TransientError
from embed_pipeline.domain.vector import numbers_of
from embed_pipeline.embedding.own import open_own
from embed_pipeline.operations.providers import open_provider
from embed_pipeline.operations.wiring import identity_of
from embed_pipeline.settings.load import checked

HERE = "python:tests.unit.test_embedding_own"
GIVEN = {"EMBED_JOB_RETENTION_DAYS": "14", "EMBEDDING_PROVIDER": f"{HERE}:Ones"}
MADE = {"EMBEDDING_MODEL": "ones-1", "EMBEDDING_DIMENSIONS": "2"}


class Ones(PythonProvider):
    """Raises what it is told to."""

    error: Exception | None = None

    async def vectors_of(self, texts: Sequence[str]) -> list[list[float]]:
        if self.error is not None:
            raise self.error
        return [[1.0] * self.dimensions for _ in texts]


class Asymmetric(Ones):
    """Embeds questions otherwise than documents, as Cohere and Bedrock do."""

    async def vectors_of(self, texts: Sequence[str]) -> list[list[float]]:
        return [[1.0, float(self.for_questions)] for _ in texts]


class Impossible(Ones):
    """Its model is nowhere."""

    def __init__(self, *, model: str, dimensions: int) -> None:
        super().__init__(model=model, dimensions=dimensions)
        raise OSError("sk-secret is not on this disk")


class Stranger:
    """Derives from nothing of ours."""


def opened(name: str = "Ones") -> PythonProvider:
    return open_own(f"{HERE}:{name}", model="ones-1", dimensions=2)


async def test_it_counts_and_cuts_as_all_others_and_is_charged_what_was_counted() -> None:
    provider = opened()

    answer = await provider.embed([provider.prepare("one two"), provider.prepare("three")])

    assert [len(vector) for vector in answer.vectors] == [8, 8]
    assert answer.tokens == 3


@pytest.mark.parametrize("are_questions", [False, True])
async def test_m125_it_knows_whether_its_texts_are_questions(are_questions: bool) -> None:
    settings = checked(None, GIVEN | MADE | {"EMBEDDING_PROVIDER": f"{HERE}:Asymmetric"})
    provider = open_provider(settings, for_questions=are_questions)

    answer = await provider.embed([provider.prepare("how do I bake bread?")])

    assert [list(numbers_of(vector)) for vector in answer.vectors] == [[1.0, are_questions]]


@pytest.mark.parametrize(
    ("error", "kind", "said"),
    [
        (PermanentError("too long"), PermanentError, "too long"),
        (RuntimeError("no answer to: my own text"), TransientError, "Ones: RuntimeError"),
        (KeyError("embedding"), TransientError, "Ones: KeyError"),
    ],
)
async def test_what_it_raises_is_an_error_of_the_queue_without_texts_and_context(
    error: Exception, kind: type[Exception], said: str
) -> None:
    provider = opened()
    setattr(provider, "error", error)  # noqa: B010 - a field of the class below the type

    with pytest.raises(kind, match=said) as caught:
        await provider.embed([provider.prepare("my own text")])

    assert "my own text" not in str(caught.value)
    assert caught.value.__context__ is None or kind is PermanentError


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("python:no_such_module_of_anybody:Class", "no_such_module_of_anybody cannot be imported"),
        (f"{HERE}:Missing", "Missing of tests.unit.test_embedding_own is no class that derives"),
        (f"{HERE}:Stranger", "derives from embed_pipeline.PythonProvider"),
        (f"{HERE}:HERE", "derives from embed_pipeline.PythonProvider"),
        (f"{HERE}:Impossible", "cannot be made: OSError"),
    ],
)
def test_a_class_that_cannot_be_used_is_said_to_be_one(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        open_own(name, model="ones-1", dimensions=2)

    assert f"EMBEDDING_PROVIDER is {name!r}" in str(caught.value)
    assert "sk-secret" not in str(caught.value)


@pytest.mark.parametrize("missing", ["EMBEDDING_MODEL", "EMBEDDING_DIMENSIONS"])
def test_model_and_length_of_a_class_must_be_said(missing: str) -> None:
    given = GIVEN | {name: value for name, value in MADE.items() if name != missing}

    with pytest.raises(ConfigurationError, match="set EMBEDDING_MODEL and EMBEDDING_DIMENSIONS"):
        checked(None, given)


@pytest.mark.parametrize(
    "wrong", ["python:", "python:a", "python:a:", "python:a b:C", "python:.:C"]
)
def test_a_name_that_can_be_no_class_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match=r"python:package\.module:Class"):
        checked(None, GIVEN | MADE | {"EMBEDDING_PROVIDER": wrong})


def test_another_class_is_another_model_and_is_limited_like_a_server() -> None:
    settings = checked(None, GIVEN | MADE)
    other = checked(None, GIVEN | MADE | {"EMBEDDING_PROVIDER": f"{HERE}:Others"})

    assert identity_of(settings) != identity_of(other)
    assert settings.is_rate_limited
    assert settings.rate_limit_name == "default"
