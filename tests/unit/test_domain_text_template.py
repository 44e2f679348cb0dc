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


@pytest.mark.parametrize("template", ["", "no names", "{", "{}", "{a.b}", "{a!r}", "{a:>3}", "{`}"])
def test_what_is_no_plain_template_is_refused(template: str) -> None:
    assert template_names(template) == ()
    with pytest.raises(ConfigurationError, match="template"):
        EntityShape(template=template)
