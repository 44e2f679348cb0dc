"""``embeddings.yaml``: what it says, and what is said when it is wrong."""

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from embed_pipeline.domain.cutover import Side
from embed_pipeline.domain.entity import EntityShape
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.identity import Embedding
from embed_pipeline.domain.relations import Relations
from embed_pipeline.operations.following import settings_of
from embed_pipeline.operations.wiring import identity_of, queue_config
from embed_pipeline.settings.embeddings import (
    VARIABLES,
    chosen_embedding,
    load_embeddings,
    read_embeddings,
    settings_for,
)
from embed_pipeline.settings.load import variables
from tests.support.project import ROOT

GOOD = """\
embeddings:
  - name: movies
    label: Movie
    key: title
    text: "{title}: {tagline}"
    provider: mock
    dimensions: 64
  - name: people
    label: Person
    vector: person_vector
    provider: local-fast
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a project, with the one variable that every project needs."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("EMBED_PIPELINE_HOME", str(tmp_path))
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setattr("embed_pipeline.settings.embeddings.project_dir", lambda: tmp_path)
    return tmp_path


def said_of(folder: Path, text: str) -> str:
    path = folder / "embeddings.yaml"
    path.write_text(text)
    with pytest.raises(ConfigurationError) as caught:
        read_embeddings(path)
    return str(caught.value)


def test_m123_each_embedding_has_its_own_profile_and_prefixes(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    path = folder / "embeddings.yaml"
    path.write_text(
        """\
embeddings:
  - name: movies
    text: "{title}"
    document_prefix: "search_document: "
    question_prefix: "search_query: "
    profile: tei
    vector: a
    provider: openai
  - name: people
    text: "{name}"
    document_prefix: "passage: "
    question_prefix: "query: "
    type_field: input_type
    document_type: passage
    question_type: query
    max_request_tokens: 900
    max_inputs: 7
    encoding: float
    send_dimensions: false
    vector: b
    provider: openai
"""
    )

    movies, people = read_embeddings(path)

    assert (movies.question_prefix, people.question_prefix) == ("search_query: ", "query: ")
    assert (movies.profile.name, movies.profile.inputs) == ("tei", 32)
    assert (people.profile.inputs, people.profile.tokens) == (7, 900)
    assert people.profile.encoding == "float"
    assert not people.profile.sends_dimensions
    assert [x.entity_shape.sent_as for x in (movies, people)] == ["", "input_type=passage"]
    assert people.profile.type_for(is_question=True) == {"input_type": "query"}
    assert [x.entity_shape.prefix for x in (movies, people)] == ["search_document: ", "passage: "]


def test_the_example_has_two_labels_of_the_sample_graph(folder: Path) -> None:
    shutil.copy(ROOT / "embeddings.example.yaml", folder / "embeddings.yaml")

    entities, people = load_embeddings()

    assert (entities.queue, entities.entity_shape) == ("default", EntityShape())
    assert (people.entity_shape.label, people.provider.value) == ("Person", "local-fast")
    assert people.entity_shape.vector != entities.entity_shape.vector
    assert people.entity_shape.has_relations
    assert people.entity_shape.relations.direction == "out"


def test_each_entry_is_an_embedding_and_the_variables_say_the_rest(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EMBED_JOB_MAX_ATTEMPTS", "7")
    (folder / "embeddings.yaml").write_text(GOOD)

    movies, people = load_embeddings()

    assert (movies.queue, movies.entity_shape.label, movies.dimensions) == ("movies", "Movie", 64)
    assert movies.entity_shape.template == "{title}: {tagline}"
    assert (people.queue, people.entity_shape.vector) == ("people", "person_vector")
    assert people.provider.value == "local-fast"
    assert [settings.max_attempts for settings in (movies, people)] == [7, 7]


def test_without_a_file_the_variables_describe_the_one_that_is_called_default(
    folder: Path,
) -> None:
    [only] = load_embeddings()

    assert only.queue == "default"


def test_the_variable_names_another_file_and_one_that_is_missing_is_said(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "other.yaml").write_text(GOOD)
    monkeypatch.setenv("EMBED_EMBEDDINGS_PATH", "other.yaml")
    assert [settings.queue for settings in load_embeddings()] == ["movies", "people"]

    monkeypatch.setenv("EMBED_EMBEDDINGS_PATH", "nowhere.yaml")
    with pytest.raises(ConfigurationError, match=r"EMBED_EMBEDDINGS_PATH is 'nowhere.yaml'; there"):
        load_embeddings()


def test_all_problems_are_said_at_once_with_line_and_field(folder: Path) -> None:
    said = said_of(
        folder,
        "embeddings:\n"
        "  - name: movies\n"
        "    colour: red\n"
        "    dimensions: 99999\n"
        "  - label: Person\n"
        "  - name: two words\n"
        "    provider: magic\n",
    )

    assert said.startswith("5 things are wrong in embeddings.yaml:\n")
    assert "embeddings.yaml:3: colour is no field of an embedding; allowed are name, label" in said
    assert "embeddings.yaml:4: dimensions is '99999'; it must be a whole number from 1" in said
    assert "embeddings.yaml:5: name is missing" in said
    assert "embeddings.yaml:6: name is 'two words'; it must be" in said
    assert "embeddings.yaml:7: provider is 'magic'; it must be auto, openai" in said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: must be 'embeddings:' and a list"),
        ("embeddings: {}", "1: must be 'embeddings:' and a list"),
        ("embeddings:\n  - just a word\n", "2: must be the fields of an embedding"),
        ("embeddings:\n  - name: [a, b]\n", "2: name must be one value"),
        ("embeddings:\n  - name: a\n    name: b\n", "3: name is said twice; the first time in"),
        ("embeddings:\n  - name: 'a\n", "3: cannot be read: found unexpected end of stream"),
    ],
)
def test_what_is_no_list_of_embeddings_is_said(folder: Path, text: str, said: str) -> None:
    assert f"embeddings.yaml:{said}" in said_of(folder, text)


def test_two_that_would_get_into_each_others_way_are_refused(folder: Path) -> None:
    both = "embeddings:\n  - {name: a, label: Movie}\n  - {name: a, label: Person}\n"
    assert "embeddings.yaml:3: name is 'a', as in line 2; each needs its own" in said_of(
        folder, both
    )
    vector = "embeddings:\n  - {name: a, label: Movie}\n  - {name: b, label: Movie}\n"
    assert "embeddings.yaml:3: b would write to embedding of Movie, as a does; set" in said_of(
        folder, vector
    )


def test_one_is_chosen_by_name_and_must_be_where_there_are_several(folder: Path) -> None:
    assert chosen_embedding(None).queue == "default"
    (folder / "embeddings.yaml").write_text(GOOD)

    assert chosen_embedding("people").queue == "people"
    with pytest.raises(ConfigurationError, match="has 2 embeddings: movies, people"):
        chosen_embedding(None)
    with pytest.raises(ConfigurationError, match="no embedding 'cats'; this project has movies"):
        chosen_embedding("cats")


def test_every_field_is_one_of_the_variables() -> None:
    assert set(VARIABLES.values()) <= set(variables())


RELATED = """\
embeddings:
  - name: people
    label: Person
    text: "{name}: {relations}"
    relations_types: KNOWS, WORKS AT
    relations_direction: out
    relations_most: 3
    relations_word: kind
    relations_names: name, title
    relations_delay_ms: 1000
    provider: mock
"""
NEIGHBOURS = Relations(("KNOWS", "WORKS AT"), "out", 3, "kind", ("name", "title"))


def test_m115_an_entry_says_which_neighbours_are_in_the_text(folder: Path) -> None:
    (folder / "embeddings.yaml").write_text(RELATED)

    [people] = load_embeddings()

    assert people.entity_shape.relations == NEIGHBOURS
    assert queue_config(people).relations_delay == timedelta(seconds=1)


def test_m115_a_program_says_which_neighbours_are_in_the_text(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("EMBED_ENTITY_RELATIONS_DIRECTION", "in")
    shape = EntityShape(template="{name} {relations}", relations=NEIGHBOURS, prefix="passage: ")

    settings = settings_for(Embedding("mock", "m", 4, shape), queue="default", database="neo4j")

    assert settings.entity_shape == shape


def test_m123_each_side_of_a_cut_over_keeps_its_prefix(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBEDDING_DOCUMENT_PREFIX", "search_document: ")
    monkeypatch.setenv("EMBED_PIECES", "nodes")
    [former] = load_embeddings()
    identity = identity_of(former)
    side = Side(
        "default", "i", "embedding", "mock", former.model, former.dimensions, identity.recipe
    )
    monkeypatch.setenv("EMBEDDING_DOCUMENT_PREFIX", "passage: ")
    [wanted] = load_embeddings()

    assert identity_of(wanted) != identity
    assert identity_of(settings_of(wanted, side)) == identity


@pytest.mark.parametrize("before", ["", "passage"])
def test_m123_each_side_of_a_cut_over_keeps_its_type(
    monkeypatch: pytest.MonkeyPatch, before: str
) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("EMBEDDING_TYPE_FIELD", "input_type" if before else "")
    monkeypatch.setenv("EMBEDDING_DOCUMENT_TYPE", before)
    [former] = load_embeddings()
    identity = identity_of(former)
    side = Side(
        "default", "i", "embedding", "openai", former.model, former.dimensions, identity.recipe
    )
    monkeypatch.setenv("EMBEDDING_TYPE_FIELD", "task")
    monkeypatch.setenv("EMBEDDING_DOCUMENT_TYPE", "document")
    [wanted] = load_embeddings()

    assert identity_of(wanted) != identity
    again = settings_of(wanted, side)
    assert identity_of(again) == identity
    assert again.profile.type_for(is_question=False) == ({"input_type": before} if before else {})


def test_m123_the_type_of_a_profile_is_no_part_of_a_recipe(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    [plain] = load_embeddings()
    monkeypatch.setenv("EMBEDDING_PROFILE", "voyage")
    [voyage] = load_embeddings()
    monkeypatch.setenv("EMBEDDING_TYPE_FIELD", "input_type")
    monkeypatch.setenv("EMBEDDING_DOCUMENT_TYPE", "document")
    [said] = load_embeddings()

    assert identity_of(said) == identity_of(voyage) == identity_of(plain)
    assert voyage.profile.type_for(is_question=True) == {"input_type": "query"}


def test_m123_types_without_a_field_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EMBED_JOB_RETENTION_DAYS", "14")
    monkeypatch.setenv("EMBEDDING_QUESTION_TYPE", "query")

    with pytest.raises(ConfigurationError, match="EMBEDDING_TYPE_FIELD, which is not set"):
        load_embeddings()


def test_m123_a_program_says_the_type_of_its_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "any")
    monkeypatch.setenv("EMBEDDING_QUESTION_TYPE", "query")
    typed = EntityShape(sent_as="input_type=passage")
    of = {
        shape: settings_for(Embedding("openai", "m", 4, shape), queue="default", database="neo4j")
        for shape in (typed, EntityShape())
    }

    assert of[typed].entity_shape.sent_as == typed.sent_as
    assert of[typed].profile.type_for(is_question=False) == {"input_type": "passage"}
    assert of[typed].profile.type_for(is_question=True) == {"input_type": "query"}
    assert of[EntityShape()].profile.type_for(is_question=True) == {}


def test_m115_each_side_of_a_cut_over_keeps_its_neighbours(folder: Path) -> None:
    (folder / "embeddings.yaml").write_text(RELATED)
    [former] = load_embeddings()
    identity = identity_of(former)
    side = Side(
        "people", "i", "embedding", "mock", former.model, former.dimensions, identity.recipe,
        former.entity_template,
    )  # fmt: skip
    other = RELATED.replace("relations_most: 3", "relations_most: 5")
    (folder / "embeddings.yaml").write_text(other)
    [wanted] = load_embeddings()

    assert identity_of(wanted) != identity
    assert identity_of(settings_of(wanted, side)) == identity
