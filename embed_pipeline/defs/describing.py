"""Lets the operator read what the reader of the code reads."""

from collections.abc import Callable
from inspect import getdoc
from typing import Any, TypeVar

Definition = TypeVar("Definition")


def described(
    decorator: Callable[..., Callable[[Any], Definition]], **options: Any
) -> Callable[[Any], Definition]:
    """Decorate with the docstring as description.

    Dagster does that itself for jobs, ops and assets, but not for sensors and schedules.
    """

    def decorate(function: Any) -> Definition:
        return decorator(description=getdoc(function), **options)(function)

    return decorate
