"""Texts of graphs that do not look like Memento's."""

from dataclasses import replace
from typing import Any

import pytest

from embed_pipeline.domain.entity import EntityShape, template_names
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.pieces import Pieces, parse_recipe
from embed_pipeline.domain.relations import READ_AS, Relations, line_of
from embed_pipeline.domain.text import (
    hasher,
    only_neighbours_differ,
    recipe_of,
    render_for,
    text_hash,
)

PAPER = EntityShape(label="Paper", key="doi", template="{title}: {abstract}\n{keywords}")


def test_a_template_is_filled_with_properties() -> None:
    text = render_for(PAPER)({"title": "On Numbers", "abstract": "x", "keywords": ["a", "b"]})

    assert text == "On Numbers: x\na\nb"


def test_a_missing_property_is_empty() -> None:
    assert render_for(PAPER)({"title": "On Numbers"}) == "On Numbers: \n"


def test_the_properties_of_the_template_are_what_is_read() -> None:
    assert PAPER.text == ("title", "abstract", "keywords")


@pytest.mark.parametrize("pieces", [None, Pieces(tokens=32)])
@pytest.mark.parametrize("prefix", ["", "search_document: ", "7:a line\nand {braces}"])
@pytest.mark.parametrize("sent_as", ["", "input_type=passage"])
def test_m123_a_recipe_says_which_prefix_and_type_its_texts_have(
    pieces: Pieces | None, prefix: str, sent_as: str
) -> None:
    plain = EntityShape(template="{name}: {relations}")
    shape = replace(plain, pieces=pieces, prefix=prefix, sent_as=sent_as)

    tokens, type_, before, text = parse_recipe(recipe_of(shape))

    assert (tokens, before) == (pieces.tokens if pieces else None, prefix)
    assert type_ == sent_as
    assert text == recipe_of(plain)


@pytest.mark.parametrize("wrong", ["input_type", "=passage", "input_type=", "a b=c", "a=b=c"])
def test_a_type_that_is_no_field_and_value_is_refused(wrong: str) -> None:
    with pytest.raises(ConfigurationError, match="as in input_type=passage"):
        EntityShape(sent_as=wrong)


def test_another_template_is_another_recipe() -> None:
    other = EntityShape(label="Paper", key="doi", template="{title}")

    assert len({recipe_of(PAPER), recipe_of(other), recipe_of(EntityShape())}) == 3


@pytest.mark.parametrize("name", ["first name", "título", "a.b", "a[0]", "a!r", "a:>3", "0", "`"])
def test_a_name_in_braces_is_that_of_a_property_whatever_it_looks_like(name: str) -> None:
    shape = EntityShape(template=f"{{{name}}} {{{{x}}}} {{other}}")

    assert shape.text == (name, "other")
    assert render_for(shape)({name: "{other}", "other": "2"}) == "{other} {x} 2"


@pytest.mark.parametrize(
    "template", ["", "no names", "{", "}", "{}", "{a", "{a}}", "{a{b}}", "{ a}", r"{a\b}"]
)
def test_what_is_no_plain_template_is_refused(template: str) -> None:
    assert template_names(template) == ()
    with pytest.raises(ConfigurationError, match="template"):
        EntityShape(template=template)


RELATED = EntityShape(template="{name}\n{relations}")


def related_hash(name: str, *neighbours: str) -> str:
    hash_of = hasher(render_for(RELATED), recipe=recipe_of(RELATED))
    return hash_of({"name": name, READ_AS: [line_of(">", "KNOWS", other) for other in neighbours]})


def test_m115_relations_alone_are_no_text_of_an_entity() -> None:
    with pytest.raises(ConfigurationError, match=r"\{relations\} is none"):
        EntityShape(template="{relations}")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"direction": "up"}, "direction is 'up'; allowed are both, out and in"),
        ({"most": 0}, "most is 0; allowed is 1 to 100"),
    ],
)
def test_m115_a_wrong_choice_of_neighbours_is_refused(given: Any, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        Relations(**given)


def test_m115_other_neighbours_are_another_recipe_only_where_they_are_in_the_text() -> None:
    other = Relations(types=("A",), direction="in", most=3, word="w", names=("title", "n:{"))
    without = EntityShape(template="{name}", relations=other)
    with_them = EntityShape(template="{name}: {relations}", relations=other)

    assert recipe_of(without) == recipe_of(EntityShape(template="{name}"))
    assert recipe_of(with_them) != recipe_of(EntityShape(template="{name}: {relations}"))
    assert Relations.parse(recipe_of(with_them)) == (other, "{name}: {relations}")
    assert Relations.parse(recipe_of(without)) is None


def test_m116_the_hash_tells_a_change_of_neighbours_from_one_of_the_entity() -> None:
    recipe = recipe_of(RELATED)
    before = related_hash("Ada", "Babbage")

    assert only_neighbours_differ(before, related_hash("Ada", "Mary"), recipe=recipe)
    assert only_neighbours_differ(before, related_hash("Ada"), recipe=recipe)
    assert not only_neighbours_differ(before, related_hash("Eve", "Babbage"), recipe=recipe)
    assert not only_neighbours_differ(before, before, recipe=recipe)
    assert not only_neighbours_differ(before, None, recipe=recipe)
    assert related_hash("  ") == text_hash("", recipe=recipe)
