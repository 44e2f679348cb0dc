"""What providers charge, as data with a date; check them before you rely on them."""

from datetime import date
from typing import Final

PRICES_OF: Final = date(2026, 7, 1)
USD_PER_MILLION_TOKENS: Final = {
    "text-embedding-3-small": 0.02,
    "text-embedding-3-large": 0.13,
    "text-embedding-ada-002": 0.10,
    "use-multilingual-3": 0.0,
    "wordllama-256": 0.0,
}


def cost_of(model: str, tokens: int) -> float | None:
    """Price of so many tokens in US dollars; None for a model without a known price."""
    price = USD_PER_MILLION_TOKENS.get(model)
    return None if price is None else price * tokens / 1_000_000
