"""What a model costs, from the price list of the package ``genai-prices``; asks no server."""

from functools import cache
from importlib.metadata import version
from typing import Any, Final

from embed_pipeline.domain.prices import UNKNOWN, Price

OPENAI: Final = "openai"


@cache
def listed_price(model: str, base_url: str | None, prices: str = "") -> Price:
    """The price of a model at the provider that ``base_url`` names, OpenAI if it names none.

    A gateway that the list does not know is taken to pass on what OpenAI charges.
    """
    # Reading the list takes most of a second, and few commands need it.
    from genai_prices import Usage, calc_price

    ways: list[dict[str, Any]] = [{"provider_id": OPENAI}]
    if base_url is not None:
        ways = [{"provider_api_url": base_url}, *ways, {}]
    if prices:
        ways = [{"provider_id": prices}, *ways]
    for way in ways:
        try:
            found = calc_price(Usage(input_tokens=1_000_000), model, **way)
        except LookupError:
            continue
        return Price(float(found.total_price), f"genai-prices {version('genai-prices')}")
    return UNKNOWN
