"""How a value is read from text, strictly: a value that looks right is right."""

import re
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from embed_pipeline.domain.entity import IDENTIFIER
from embed_pipeline.domain.neo4j_uri import is_neo4j_uri

DAY_MS: Final = 86_400_000


def _whole_number(value: object) -> object:
    # int() would also take "1_4", " 14\n" and full-width digits.
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,12}", value, re.ASCII):
        raise ValueError("not a whole number")
    return value


def _neo4j_uri(value: str) -> str:
    if not is_neo4j_uri(value):
        raise ValueError("not an address of Neo4j")
    return value


def _http_url(value: str) -> str:
    if not re.fullmatch(r"https?://[^\s/@]+(/\S*)?", value):
        raise ValueError("not an HTTP address")
    return value.rstrip("/")


def _identifier(value: str) -> str:
    if not IDENTIFIER.fullmatch(value):
        raise ValueError("not a name")
    return value


def _stripped(value: object) -> object:
    # A mounted secret often ends in a newline; the HTTP client reports that as a broken
    # connection, for ever.
    return value.strip() if isinstance(value, str) else value


WholeNumber = Annotated[int, BeforeValidator(_whole_number)]
Neo4jUri = Annotated[str, AfterValidator(_neo4j_uri)]
HttpUrl = Annotated[str, AfterValidator(_http_url)]
Identifier = Annotated[str, AfterValidator(_identifier)]
Secret = Annotated[SecretStr, BeforeValidator(_stripped)]


def setting(variable: str, purpose: str, allowed: str, default: Any = None, **bounds: Any) -> Any:
    """Declare a setting; ``purpose`` and ``allowed`` are what people read about it."""
    return Field(
        default,
        validation_alias=variable,
        description=purpose,
        json_schema_extra={"allowed": allowed},
        **bounds,
    )
