"""How a value is read from text, strictly: a value that looks right is right."""

import re
from datetime import date, timedelta
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from embed_pipeline.domain.entity import is_name, template_names
from embed_pipeline.domain.models import OWN_PROVIDER
from embed_pipeline.domain.neo4j_uri import is_neo4j_uri
from embed_pipeline.settings.addresses import is_provider_url

DAY: Final = timedelta(days=1)
MILLISECOND: Final = timedelta(milliseconds=1)
LONGEST: Final = timedelta(days=365_000)
ALLOWED_NAMES: Final = "names with commas between them, each as a label may be"


def _whole_number(value: object) -> object:
    # int() would also take "1_4", " 14\n" and full-width digits.
    if isinstance(value, str) and not re.fullmatch(r"-?[0-9]{1,12}", value, re.ASCII):
        raise ValueError("not a whole number")
    return value


def _milliseconds(value: object) -> object:
    if not isinstance(value, (str, int)):
        return value
    number = int(str(_whole_number(value)))
    if abs(number) > LONGEST // MILLISECOND:
        raise ValueError("longer than anything lasts")
    return number * MILLISECOND


def _day(value: object) -> object:
    # pydantic would also take "20261118" and seconds since 1970.
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", value, re.ASCII):
        raise ValueError("not a day")
    return value


def _amount(value: object) -> object:
    # float() would also take "nan", "1e3" and "1_000".
    if isinstance(value, str) and not re.fullmatch(r"[0-9]{1,9}(\.[0-9]{1,9})?", value, re.ASCII):
        raise ValueError("not an amount")
    return value


def _neo4j_uri(value: str) -> str:
    if not is_neo4j_uri(value):
        raise ValueError("not an address of Neo4j")
    return value


def _provider_url(value: str) -> str:
    if not is_provider_url(value):
        raise ValueError("not an address for a key")
    return value.rstrip("/")


def _name(value: str) -> str:
    if not is_name(value):
        raise ValueError("not a name")
    return value


def names_in(value: str | None) -> tuple[str, ...]:
    """The names in a list with commas."""
    return tuple(name.strip() for name in (value or "").split(",") if name.strip())


def _names(value: str) -> str:
    if not (names := names_in(value)) or not all(map(is_name, names)):
        raise ValueError("not a list of names")
    return value


def _template(value: str) -> str:
    if not template_names(value):
        raise ValueError("no names in braces")
    return value


def _stripped(value: object) -> object:
    # A mounted secret often ends in a newline; the HTTP client reports that as a broken
    # connection, for ever.
    if not isinstance(value, str):
        return value
    if not value.strip():
        raise ValueError("nothing but blanks")
    return value.strip()


def _key(value: SecretStr) -> SecretStr:
    # Anything else cannot be sent in a header.
    if not re.fullmatch(r"[!-~]+", value.get_secret_value()):
        raise ValueError("not a key")
    return value


PROVIDERS: Final = rf"^(auto|openai|local|local-fast|mock|{OWN_PROVIDER})$"
WholeNumber = Annotated[int, BeforeValidator(_whole_number)]
Day = Annotated[date, BeforeValidator(_day)]
Milliseconds = Annotated[timedelta, BeforeValidator(_milliseconds)]
"""Milliseconds in a variable, a duration for everybody else."""
Amount = Annotated[float, BeforeValidator(_amount)]
Neo4jUri = Annotated[str, AfterValidator(_neo4j_uri)]
ProviderUrl = Annotated[str, AfterValidator(_provider_url)]
Name = Annotated[str, AfterValidator(_name)]
Names = Annotated[str, AfterValidator(_names)]
Template = Annotated[str, AfterValidator(_template)]
Secret = Annotated[SecretStr, BeforeValidator(_stripped)]
ApiKey = Annotated[SecretStr, BeforeValidator(_stripped), AfterValidator(_key)]


def written(value: object) -> str:
    """Write a value the way it stands in a variable."""
    return str(value // MILLISECOND if isinstance(value, timedelta) else value)


def setting(variable: str, purpose: str, allowed: str, default: Any = None, **bounds: Any) -> Any:
    """Declare a setting; ``purpose`` and ``allowed`` are what people read about it."""
    return Field(
        default,
        validation_alias=variable,
        description=purpose,
        json_schema_extra={"allowed": allowed},
        **bounds,
    )
