"""Sensors and schedules: with the docstring as description, and guarded like everything else."""

from collections.abc import Callable
from inspect import getdoc
from typing import Any, TypeVar

from embed_pipeline.defs.border import guarded

Definition = TypeVar("Definition")


def described(
    decorator: Callable[..., Callable[[Any], Definition]], **options: Any
) -> Callable[[Any], Definition]:
    """Decorate with the docstring as description, and let no error out as it is.

    Dagster shows docstrings of jobs, ops and assets itself, but not of sensors and schedules.
    """

    def decorate(function: Any) -> Definition:
        return decorator(description=getdoc(function), **options)(guarded(function))

    return decorate
