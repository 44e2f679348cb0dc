"""Errors that differ only in numbers, ids and names are one kind of error."""

import re
from typing import Final

LONGEST: Final = 160
_VARYING: Final = (
    (re.compile(r"\b[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"), "<id>"),
    # Not the apostrophe of "can't".
    (re.compile(r"(?<!\w)'[^']*'|\"[^\"]*\"|`[^`]*`"), "<text>"),
    (re.compile(r"\b(req|chatcmpl|org|proj|sk)[-_][\w-]+"), "<id>"),
    (re.compile(r"\b0x[0-9a-fA-F]+\b|\b[0-9a-fA-F]{12,}\b"), "<id>"),
    (re.compile(r"\d+([.,:]\d+)*"), "<n>"),
    (re.compile(r"\s+"), " "),
)


def fingerprint(message: str) -> str:
    """What stays of a message when everything that varies is taken out."""
    text = message.strip()
    for pattern, stand_in in _VARYING:
        text = pattern.sub(stand_in, text)
    return text[:LONGEST]
