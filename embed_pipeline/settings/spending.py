"""The settings about money and quality: what tokens cost and may cost, and which edges count."""

from dataclasses import replace
from typing import Literal

from embed_pipeline.domain.batch import HALF
from embed_pipeline.domain.budget import Budget
from embed_pipeline.domain.models import Provider
from embed_pipeline.domain.prices import FREE, Price
from embed_pipeline.domain.profiles import OWN_SERVER
from embed_pipeline.settings.entities import EntitySettings
from embed_pipeline.settings.prices import listed_price
from embed_pipeline.settings.types import Amount, WholeNumber, names_in, setting

_DOLLARS = "dollars from 0.000001 to 1000000; to stop all requests, pause the queue"
_TOKENS = "a whole number from 1 to 100000000000; to stop all requests, pause the queue"


class SpendingSettings(EntitySettings):
    """Settings of queue and entities, and prices and budgets."""

    own_price: Amount | None = setting(
        "EMBEDDING_PRICE_USD_PER_MILLION",
        "What a million tokens cost; if empty the list price of the model, if it is known.",
        "dollars from 0 to 1000000",
        ge=0,
        le=1_000_000,
    )
    usd_per_day: Amount | None = setting(
        "EMBED_BUDGET_USD_PER_DAY",
        "Dollars per day (UTC) over all workers of the account; the rest waits. No limit if empty.",
        _DOLLARS,
        ge=0.000001,
        le=1_000_000,
    )
    usd_per_month: Amount | None = setting(
        "EMBED_BUDGET_USD_PER_MONTH", "The same per month.", _DOLLARS, ge=0.000001, le=1_000_000
    )
    tokens_per_day: WholeNumber | None = setting(
        "EMBED_BUDGET_TOKENS_PER_DAY",
        "Tokens per day (UTC) over all workers of the account; the rest waits. No limit if empty.",
        _TOKENS,
        ge=1,
        le=100_000_000_000,
    )
    tokens_per_month: WholeNumber | None = setting(
        "EMBED_BUDGET_TOKENS_PER_MONTH", "The same per month.", _TOKENS, ge=1, le=100_000_000_000
    )
    confirm_usd: Amount = setting(
        "EMBED_CONFIRM_USD",
        "Dollars above which a command that embeds much again asks first, or needs --yes.",
        "dollars from 0 to 1000000",
        1.0,
        ge=0,
        le=1_000_000,
    )

    mode: Literal["sync", "batch"] = setting(
        "EMBEDDING_MODE",
        "sync, or batch: large backlogs go through the provider's Batch API, within a day for half "
        "the price.",
        "sync or batch",
        "sync",
    )
    batch_least: WholeNumber = setting(
        "EMBEDDING_BATCH_LEAST",
        "The least number of due jobs that make a batch; an ordinary drain does fewer.",
        "a whole number from 1 to 50000",
        1_000,
        ge=1,
        le=50_000,
    )

    quality_leave_out: str | None = setting(
        "EMBED_QUALITY_LEAVE_OUT",
        "Types of relationships that say nothing about meaning, for the check of the vectors.",
        "names with commas between them, at most 1000 characters",
        pattern=r"^[^\x00-\x1f]{1,1000}$",
    )

    @property
    def quality_left_out(self) -> tuple[str, ...]:
        """Types of relationships that the quality check ignores."""
        return names_in(self.quality_leave_out)

    @property
    def price(self) -> Price:
        """The price of the model."""
        if self.own_price is not None:
            return Price(self.own_price, "EMBEDDING_PRICE_USD_PER_MILLION")
        if self.provider.runs_here:
            return FREE
        known = self.known_profile
        if known and known.prices == OWN_SERVER:
            return Price(0.0, f"{OWN_SERVER}, as the profile {known.name} says")
        return listed_price(self.model, self.openai_base_url, known.prices if known else "")

    @property
    def batch_price(self) -> Price:
        """The price in a batch."""
        price = self.price
        if not price.usd_per_million:
            return price
        return Price(price.usd_per_million * HALF, f"half of that of {price.source}, in batches")

    @property
    def no_batches(self) -> str | None:
        """Why nothing can go through batches, whatever the mode; None where it can."""
        if self.provider is not Provider.OPENAI:
            return f"the provider {self.provider} has no Batch API"
        if self.pieces == "nodes":
            return "batches make no pieces of texts as nodes (EMBED_PIECES=nodes)"
        return None

    def price_of(self, texts: int) -> Price:
        """The price of a backlog of so many texts: that of batches if it goes through them."""
        is_batch = self.mode == "batch" and not self.no_batches and texts >= self.batch_least
        return self.batch_price if is_batch else self.price

    @property
    def has_money_budget(self) -> bool:
        """Whether there is a budget in dollars, which needs a price."""
        is_set = self.usd_per_day is not None or self.usd_per_month is not None
        return is_set and not self.provider.runs_here

    @property
    def budget(self) -> Budget:
        """The budget of the account; a model on this machine costs nothing."""
        if self.provider.runs_here:
            return Budget(self.price)
        return Budget(
            self.price,
            usd_per_day=self.usd_per_day,
            usd_per_month=self.usd_per_month,
            tokens_per_day=self.tokens_per_day,
            tokens_per_month=self.tokens_per_month,
        )

    @property
    def batch_budget(self) -> Budget:
        """The same budget, at the price of batches."""
        return replace(self.budget, price=self.batch_price)

    @property
    def tokens_per_request(self) -> int | None:
        """The tokens that a request should not exceed, because of limit or budget."""
        most = (self.tokens_per_minute, self.budget.tokens_per_request)
        return min((tokens for tokens in most if tokens is not None), default=None)
