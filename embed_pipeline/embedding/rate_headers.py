"""What is left of a provider's limits: ``x-ratelimit-*`` headers, which may say anything."""

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Final

from embed_pipeline.domain.holds import Allowance, Left, pause_of

_UNITS: Final = {"d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 0.001}
_DURATION: Final = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|[dhms])){1,6}", re.ASCII)
_PART: Final = re.compile(r"([\d.]+)(ms|[dhms])", re.ASCII)
_NUMBER: Final = re.compile(r"\d{1,15}", re.ASCII)


def allowance_of(headers: Mapping[str, str]) -> Allowance | None:
    """Read ``x-ratelimit-remaining-requests`` and the like; ``None`` where they say nothing."""
    requests, tokens = _left(headers, "requests"), _left(headers, "tokens")
    return Allowance(requests, tokens) if requests or tokens else None


def _left(headers: Mapping[str, str], what: str) -> Left | None:
    amount = _number(headers.get(f"x-ratelimit-remaining-{what}"))
    resets_in = _duration(headers.get(f"x-ratelimit-reset-{what}"))
    if amount is None or resets_in is None:
        return None
    return Left(amount, resets_in, _number(headers.get(f"x-ratelimit-limit-{what}")))


def _number(said: str | None) -> int | None:
    return int(said) if said and _NUMBER.fullmatch(said.strip()) else None


def _duration(said: str | None) -> timedelta | None:
    """``6m0s``, ``20ms``, ``1.5s`` as OpenAI writes it, or plain seconds."""
    said = (said or "").strip()
    if _NUMBER.fullmatch(said):
        return pause_of(float(said))
    if not _DURATION.fullmatch(said):
        return None
    return pause_of(sum(float(number) * _UNITS[unit] for number, unit in _PART.findall(said)))
