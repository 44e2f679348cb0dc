"""Texts of graphs that do not look like Memento's."""

import pytest

from embed_pipeline.domain.entity import EntityShape, template_names
from embed_pipeline.domain.errors import ConfigurationError
from embed_pipeline.domain.text import recipe_of, render_for

PAPER = EntityShape(label="Paper", key="doi", template="{title}: {abstract}\n{keywords}")


def test_a_template_is_filled_with_properties() -> None:
    text = render_for(PAPER)({"title": "On Numbers", "abstract": "x", "keywords": ["a", "b"]})

    assert text == "On Numbers: x\na\nb"


def test_a_missing_property_is_empty() -> None:
    assert render_for(PAPER)({"title": "On Numbers"}) == "On Numbers: \n"


def test_the_properties_of_the_template_are_what_is_read() -> None:
    assert PAPER.text == ("title", "abstract", "keywords")


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
