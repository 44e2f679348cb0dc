"""Lets the driver of Neo4j load without numpy, pandas and pyarrow, which it takes where they are.

It would pack their arrays. Nothing of this project hands it any, and loading them was more than
half of what the driver costs a new process. Only processes of our own do this, the command and the
code location: a program that uses the package may hand arrays to the driver.
"""

import sys
from importlib.abc import MetaPathFinder
from typing import Any, Final

ARRAYS: Final = frozenset({"numpy", "pandas", "pyarrow"})
DRIVER: Final = "neo4j"


class _WithoutArrays(MetaPathFinder):
    def find_spec(self, name: str, *_: Any) -> None:
        """Say that there are none, while the driver is being loaded."""
        driver = sys.modules.get(DRIVER) if name in ARRAYS else None
        # What Python itself asks to see whether a module is only half there.
        if driver is not None and getattr(driver.__spec__, "_initializing", False):
            raise ModuleNotFoundError(f"{DRIVER} is loaded without {name}", name=name)


def load_driver_alone() -> None:
    """From now on; has no effect on a driver that is loaded already."""
    sys.meta_path.insert(0, _WithoutArrays())
