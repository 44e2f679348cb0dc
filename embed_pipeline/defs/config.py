"""The base of every run config: literal values, bounded, and never shown when they are refused.

Dagster lets ``{env: NAME}`` stand for any text, number or switch of a pythonic config, and resolves
it before the op sees it. Whoever can launch a run (a link in any web page can) could so have any
variable of the environment stored or printed. The schemas made here have no place for a variable.
"""

from typing import Any, TypeVar

import dagster as dg
from pydantic import ConfigDict, ValidationError

from embed_pipeline.defs.site import EMBEDDING, Site
from embed_pipeline.domain.errors import ConfigurationError


class RunConfig(dg.Config):
    """Base class of every run config."""

    model_config = ConfigDict(hide_input_in_errors=True, extra="forbid")


Config = TypeVar("Config", bound=RunConfig)


def schema_of(config: type[RunConfig] | None, site: Site) -> dg.Field:
    """The schema that Dagster validates a run config with.

    Without a class nothing can be said, except which embedding is meant where there are several.
    """
    fields, description = dict[str, dg.Field](), "Which embedding."
    if config is not None:
        field = config.to_config_schema().as_field()
        fields = _literal(field.config_type).fields
        description = f"{field.description} Values only: variables ({{env: NAME}}) are refused."
    if site.is_shared:
        fields = {EMBEDDING: _choice(site), **fields}
    return dg.Field(dg.Shape(fields), description=description if fields else None)


def _choice(site: Site) -> dg.Field:
    values = [dg.EnumValue(queue) for queue in site.queues]
    return dg.Field(
        dg.Enum(site.name("EmbeddingName"), values),
        is_required=True,
        description=f"The embedding that is meant: {', '.join(site.queues)}.",
    )


def read_config(config: type[Config], given: Any) -> Config:
    """Check what was given against the bounds that Dagster's schema cannot express.

    Raises:
        ConfigurationError: names every field that is refused and what is allowed, never the value.
    """
    try:
        return config(**given)
    except ValidationError as error:
        problems = "; ".join(
            f"{'.'.join(map(str, problem['loc']))}: {problem['msg']}" for problem in error.errors()
        )
    raise ConfigurationError(f"the run config is refused: {problems}")


def _literal(kind: Any) -> Any:
    """The same type restricted to literal values."""
    match kind:
        case dg.Shape():
            return dg.Shape({name: _literal_field(field) for name, field in kind.fields.items()})
        case dg.Noneable():
            return dg.Noneable(_literal(kind.inner_type))
        case dg.Array():
            return dg.Array(_literal(kind.inner_type))
        case dg.ScalarUnion():
            # A value, or {env: NAME}.
            return kind.scalar_type
    return kind


def _literal_field(field: dg.Field) -> dg.Field:
    default = {"default_value": field.default_value} if field.default_provided else {}
    return dg.Field(
        _literal(field.config_type),
        is_required=field.is_required,
        description=field.description,
        **default,
    )
