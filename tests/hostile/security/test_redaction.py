"""What a provider or a driver says is shown without keys and without texts (I19, T3, T5, T6)."""

import json

import pytest
from neo4j.exceptions import ClientError
from starlette.responses import Response

from embed_pipeline.domain.errors import EmbeddingError, PermanentError
from embed_pipeline.domain.redact import said_by_provider, stack_of, without_words_of
from embed_pipeline.embedding.openai import OpenAIEmbedder
from tests.support.openai_server import failure, openai_server

TEXT = """\
Name: Ada Lovelace
Observations:
- treated for "Parkinson" in 1837, über Ärzte
- 患者は糖尿病"""
SECRETS = (
    "Observations",
    "Ada",
    "Lovelace",
    "Parkinson",
    "1837",
    "über",
    "Ärzte",
    "患者",
    "糖尿病",
    "treated",
)
KEY = "correct-horse-battery"


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(f"Invalid input: {TEXT}", id="as it is"),
        pytest.param(f"Invalid input: {json.dumps(TEXT)}", id="as JSON in ASCII"),
        pytest.param(f"Invalid input: {json.dumps(json.dumps(TEXT))}", id="as JSON in JSON"),
        pytest.param(f"Invalid input: {TEXT!r}", id="as Python"),
        pytest.param(f"Invalid input: {TEXT[:52]}… is too long", id="cut off within a word"),
        pytest.param(f"Invalid input: {TEXT.upper()}", id="in capitals"),
        pytest.param("Invalid input: ada_lovelace/parkinson-1837", id="with other marks"),
        pytest.param("入力エラー「患者は」", id="inside a word without blanks"),
        pytest.param("the word Parkinson", id="a single word"),
    ],
)
def test_no_word_of_the_text_is_shown_however_it_is_quoted(message: str) -> None:
    shown = without_words_of([TEXT], message).casefold()

    escaped = [json.dumps(word).strip('"') for word in SECRETS]
    assert [word for word in (*SECRETS, *escaped) if word.casefold() in shown] == []
    assert "parkinso" not in shown


@pytest.mark.parametrize(
    "message",
    [
        "This model's maximum context length is 8192 tokens, however you requested 9000 tokens",
        "Incorrect API key provided. You can find your API key at https://platform.openai.com",
        "Rate limit reached for text-embedding-3-small in organization org-Xy1 on tokens per min",
        "You exceeded your current quota, please check your plan and billing details.",
    ],
)
def test_what_is_wrong_can_still_be_read(message: str) -> None:
    assert without_words_of([TEXT], message) == message


def test_the_key_is_masked_before_a_long_message_is_cut() -> None:
    for padding in range(3_970, 4_005):
        said = said_by_provider("Ada " * (padding // 4) + KEY * 2, texts=[TEXT], secret=KEY)

        assert "correct" not in said


def test_what_a_provider_says_is_one_short_line() -> None:
    hostile = "no\r\n2026-11-16 ERROR forged\x1b[2J\u202e" + "x" * 1_000_000

    said = said_by_provider(hostile, texts=[TEXT], secret=KEY)

    assert said.isprintable()
    assert len(said) <= 1_000
    assert said.startswith(r"no\r\n2026-11-16 ERROR forged\x1b[2J\u202e")


@pytest.mark.parametrize("status", [400, 401, 404, 422, 429, 500])
async def test_an_error_of_the_provider_holds_neither_key_nor_text_nor_a_cause_with_them(
    status: int,
) -> None:
    with openai_server() as server:
        server.key = KEY
        server.answer_with = lambda _: failure(status, f"no: {KEY} {TEXT}", None)
        embedder = OpenAIEmbedder(model="m", dimensions=4, api_key=KEY, base_url=server.base_url)
        with pytest.raises(EmbeddingError) as caught:
            await embedder.embed([embedder.prepare(TEXT)])
        await embedder.close()

    everything = f"{caught.value} {stack_of(caught.value)}"
    assert [word for word in (KEY, *SECRETS) if word in everything] == []
    assert caught.value.__context__ is None
    assert caught.value.__cause__ is None


async def test_an_unreadable_answer_is_not_quoted() -> None:
    with openai_server() as server:
        server.key = KEY
        server.answer_with = lambda _: Response(f"<p>{TEXT}", media_type="application/json")
        embedder = OpenAIEmbedder(model="m", dimensions=4, api_key=KEY, base_url=server.base_url)
        with pytest.raises(EmbeddingError) as caught:
            await embedder.embed([embedder.prepare(TEXT)])
        await embedder.close()

    assert [word for word in SECRETS if word in f"{caught.value} {stack_of(caught.value)}"] == []


def test_a_stack_names_the_errors_of_others_but_does_not_quote_them() -> None:
    def write() -> None:
        raise ClientError(f"Node(7) already exists with name = '{TEXT}'")

    def complete() -> None:
        try:
            write()
        except ClientError as error:
            raise PermanentError("the database refuses it") from error

    with pytest.raises(PermanentError) as caught:
        complete()

    stack = stack_of(caught.value)
    assert [word for word in SECRETS if word in stack] == []
    assert "neo4j.exceptions.ClientError" in stack
    assert "in write" in stack
    assert stack.rstrip().endswith("PermanentError: the database refuses it")
