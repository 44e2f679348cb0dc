"""What a Neo4j address may look like, checked before the driver sees it.

The driver reports a bad scheme as a missing module and prints a password that stands in the
address; so neither reaches it.
"""

import re
from typing import Final
from urllib.parse import urlsplit

SCHEMES: Final = ("bolt", "bolt+s", "bolt+ssc", "neo4j", "neo4j+s", "neo4j+ssc")
ALLOWED_URI: Final = (
    "bolt:// or neo4j:// (with +s or +ssc for TLS) and a host, for example bolt://localhost:7687"
)


def holds_credentials(uri: str) -> bool:
    """Say whether the address holds a user or a password, and so must not be shown."""
    return "@" in uri


def is_neo4j_uri(uri: str) -> bool:
    """Say whether the address can be one of Neo4j, without user and password."""
    try:
        parts = urlsplit(uri)
        port = parts.port
    except ValueError:
        return False
    # urlsplit takes away blanks in front and keeps those behind; the driver does neither.
    is_plain = re.fullmatch(r"[!-~]+", uri) is not None and "@" not in uri
    return is_plain and parts.scheme in SCHEMES and bool(parts.hostname) and port != 0
