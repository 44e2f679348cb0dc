"""Takes secrets out of what is stored about a failure."""

import re
from collections.abc import Iterable
from typing import Final

MASK: Final = "***"
MAX_MESSAGE: Final = 1_000
MAX_STACK: Final = 4_000
_PATTERNS: Final = (
    # Keys of OpenAI and of the servers that copy its format.
    re.compile(r"\b(?:sk|pk|rk)-[A-Za-z0-9_\-*.]{6,}"),
    re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{6,}"),
    # A user and password inside an address.
    re.compile(r"(?<=://)[^\s/@]+@"),
    re.compile(
        r"(?i)\b(\w*(?:api[_-]?key|authorization|password|passwd|secret|token))"
        r"([\"']?\s*[=:]\s*)(?!\d+\b)(\"[^\"]*\"|'[^']*'|[^\s,;)}]+)"
    ),
)


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """Mask known secrets, and everything that looks like one."""
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, MASK)
    key, scheme, userinfo, assignment = _PATTERNS
    text = key.sub(MASK, text)
    text = scheme.sub(rf"\1 {MASK}", text)
    text = userinfo.sub(f"{MASK}@", text)
    return assignment.sub(rf"\1\2{MASK}", text)
