"""Which addresses may be given a secret or the text of an entity.

What is sent in the clear can be read on the way, so it must not leave this machine. And an address
that means something else than it shows is none: user names, numbers in disguise, other alphabets.
"""

import ipaddress
import re
from typing import Final
from urllib.parse import urlsplit

ENCRYPTED: Final = ("+s", "+ssc")
LABEL: Final = r"[A-Za-z0-9_](?:[A-Za-z0-9_-]{0,61}[A-Za-z0-9_])?"
# The last part of a name begins with a letter: 0xA9FEA9FE and 2852039166 are disguised numbers.
HOST_NAME: Final = re.compile(rf"(?:{LABEL}\.)*(?=[A-Za-z]){LABEL}\.?")
URL: Final = re.compile(
    r"(https?)://(\[[0-9A-Fa-f:.]+\]|[^\s/@:\[\]?#\\]+)(:[0-9]{1,5})?(/[!-~]*)?"
)


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, without a lookup."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def is_plaintext_bolt(uri: str) -> bool:
    """Say whether a Neo4j address sends password and texts unencrypted to another machine."""
    parts = urlsplit(uri)
    return not parts.scheme.endswith(ENCRYPTED) and not is_loopback(parts.hostname or "")


def is_provider_url(url: str) -> bool:
    """Say whether the key and the texts may be sent there: https, or http on this machine."""
    match = URL.fullmatch(url)
    if match is None or "?" in url or "#" in url:
        return False
    scheme, host, port, _ = match.groups()
    is_port = port is None or 0 < int(port[1:]) <= 65_535
    return is_port and (is_loopback(host.strip("[]")) or (scheme == "https" and _is_public(host)))


def _is_public(host: str) -> bool:
    """Whether a service may be at the address; link-local ones (metadata services) are refused.

    A private network is one: many run a provider of their own.
    """
    try:
        address = ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return HOST_NAME.fullmatch(host) is not None
    mapped = getattr(address, "ipv4_mapped", None) or address
    return not (
        mapped.is_link_local or mapped.is_unspecified or mapped.is_multicast or mapped.is_reserved
    )
