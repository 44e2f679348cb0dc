"""What a queue may be called.

Several queues live in one database, each with labels, indexes and nodes of its own. The name
becomes part of those, so it cannot be just anything.
"""

import re
from typing import Final

from embed_pipeline.domain.errors import ConfigurationError

DEFAULT_QUEUE: Final = "default"
QUEUE_NAME: Final = r"[a-z][a-z0-9_]{0,30}"
ALLOWED_QUEUE: Final = "up to 31 small letters, digits and _, starting with a letter"


def checked_queue_name(name: str) -> str:
    """Return the name.

    Raises:
        ConfigurationError: no queue can be called that.
    """
    if not re.fullmatch(QUEUE_NAME, name, re.ASCII):
        raise ConfigurationError(f"a queue cannot be called {name!r}; allowed are {ALLOWED_QUEUE}")
    return name
