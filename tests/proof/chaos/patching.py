"""Changes a module of the product inside this process."""

from collections.abc import Callable
from types import ModuleType
from typing import Any


def patch(module: ModuleType, name: str, change: Callable[[Any], Any]) -> None:
    """Put what ``change`` makes of it in the place of a function or a statement."""
    setattr(module, name, change(getattr(module, name)))
