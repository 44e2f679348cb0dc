"""A provider that speaks OpenAI's protocol and is often out of order."""

import asyncio
import random
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import PlainTextResponse, Response

from tests.proof.chaos.plan import JOB_TIMEOUT
from tests.proof.chaos.texts import DIMENSIONS, REFUSED, vector_of
from tests.support.openai_server import failure, vectors

LATENCY: Final = 0.03
LONG_LATENCY: Final = 1.0
HANG: Final = JOB_TIMEOUT.total_seconds() + 2

ODDS: Final = {
    "slow": 0.05,
    "429": 0.01,
    "500": 0.015,
    "hangs": 0.003,
    "garbage": 0.01,
    "truncated": 0.005,
    "wrong count": 0.01,
    "not finite": 0.005,
}
"""How likely each fault is per request, while the weather is bad."""


@dataclass
class Provider:
    """Answers with the one vector of each text, or not at all."""

    chance: random.Random
    is_calm: bool = False
    is_down: bool = False
    quotas: int = 0
    """So many of the next requests hear that the account is empty."""
    faults: Counter[str] = field(default_factory=Counter)
    embedded: int = 0
    """Texts that got their vector."""

    async def answer(self, body: dict[str, Any]) -> Response:
        await asyncio.sleep(LATENCY)
        if self.is_down:
            self.faults["down"] += 1
            return failure(503, "nobody is here", None)
        if any(REFUSED in text for text in body["input"]):
            return failure(400, "invalid input", "invalid_input")
        if self.quotas:
            self.quotas -= 1
            self.faults["quota"] += 1
            return failure(429, "the account is empty", "insufficient_quota")
        fault = None if self.is_calm else self._fault()
        if fault is None:
            return self._vectors(body)
        self.faults[fault] += 1
        return await self._bad_answer(fault, body)

    def _vectors(self, body: dict[str, Any]) -> Response:
        self.embedded += len(body["input"])
        return vectors(body, of_text=vector_of)

    def _fault(self) -> str | None:
        weights = [*ODDS.values(), 1 - sum(ODDS.values())]
        return self.chance.choices([*ODDS, None], weights)[0]

    async def _bad_answer(self, fault: str, body: dict[str, Any]) -> Response:
        match fault:
            case "slow":
                await asyncio.sleep(LONG_LATENCY)
                return self._vectors(body)
            case "429":
                return failure(429, "slow down", "rate_limit_exceeded", **{"retry-after-ms": "300"})
            case "500":
                return failure(500, "oops", None)
            case "hangs":
                await asyncio.sleep(HANG)
                return failure(500, "too late", None)
            case "garbage":
                return PlainTextResponse("<html>bad gateway</html>")
            case "truncated":
                whole = bytes(vectors(body, of_text=vector_of).body)
                return Response(whole[: len(whole) // 2], media_type="application/json")
            case "wrong count":
                fewer = {**body, "input": body["input"][1:]}
                return vectors(fewer, of_text=vector_of)
            case _:
                return vectors(body, of_text=lambda _: [float("nan")] * DIMENSIONS)
