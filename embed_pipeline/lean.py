"""Load libraries without the heavy parts that this project does not use.

The driver of Neo4j would pack arrays of numpy and pandas: loading those was more than half of what
it costs a new process. The client of OpenAI loads aiohttp, which it can use instead of its own, and
the types of all its endpoints, four hundred modules of which embeddings need two (measured: 0.39
and 0.15 s of processor time). Only processes of our own do this, the command and the code location:
a program that uses the package may need what it has loaded.
"""

import sys
from functools import partial
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from threading import RLock
from types import ModuleType
from typing import Any, Final

UNUSED: Final = {
    "numpy": "neo4j",
    "pandas": "neo4j",
    "pyarrow": "neo4j",
    # Not by the client itself: a provider of the user's may be a class that needs it.
    "aiohttp": "embed_pipeline.embedding.openai",
}
"""What is not to be loaded by whom."""
TYPES: Final = "openai.types"
"""Packages whose modules are loaded on first use."""


def load_libraries_alone() -> None:
    """From now on; has no effect on libraries that are loaded already."""
    sys.meta_path[:0] = [_WithoutUnused(), _TypesOnDemand()]


class _WithoutUnused(MetaPathFinder):
    def find_spec(self, name: str, *_: Any) -> None:
        """Say that there is none, while the library is being loaded."""
        library = sys.modules.get(UNUSED.get(name, ""))
        # What Python itself asks to see whether a module is only half there.
        if library is not None and getattr(library.__spec__, "_initializing", False):
            raise ModuleNotFoundError(f"{UNUSED[name]} is loaded without {name}", name=name)


class _TypesOnDemand(MetaPathFinder):
    def find_spec(self, name: str, path: Any = None, *_: Any) -> ModuleSpec | None:
        if name != TYPES and not name.startswith(f"{TYPES}."):
            return None
        spec = PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None or spec.submodule_search_locations is None:
            return spec
        spec.loader = _OnDemand(spec.loader)
        return spec


class _OnDemand(Loader):
    """Runs what a package consists of when something is asked for that is no module in it."""

    def __init__(self, whole: Loader) -> None:
        self._whole = whole
        self._turn = RLock()
        self._is_loading = False

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._whole.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        """Load nothing yet."""
        vars(module)["__getattr__"] = partial(self._found, module)

    def _found(self, module: ModuleType, name: str) -> Any:
        full = f"{module.__name__}.{name}"
        if not name.startswith("__") and find_spec(full):
            return import_module(full)
        with self._turn:
            if name.startswith("__") or self._is_loading:
                raise AttributeError(f"there is no {full}", name=name, obj=module)
            if "__getattr__" in vars(module):
                self._is_loading = True
                try:
                    self._whole.exec_module(module)
                finally:
                    self._is_loading = False
                del vars(module)["__getattr__"]
        return getattr(module, name)
