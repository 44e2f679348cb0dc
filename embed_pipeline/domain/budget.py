"""How much may be spent per day and month: a spent budget pauses everybody until the next one.

Days and months are those of the database's clock, in UTC. What a request will cost is added when
it is granted, and put right when the provider has said what it charges. What an answer that got
lost has cost is unknown, so it stays counted.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from typing import Final

from embed_pipeline.domain.prices import NANO, UNKNOWN, Price

NEARLY_SPENT: Final = 80.0
"""Percent of a budget from which a warning is given."""
REQUESTS_PER_BUDGET: Final = 20
"""A request holds at most this part of a budget: the one that crosses it goes beyond by no more."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MS: Final = timedelta(milliseconds=1)


class Period(StrEnum):
    """The period of a budget."""

    DAY = "day"
    MONTH = "month"

    def start(self, now_ms: int) -> int:
        """When the period that contains ``now_ms`` began."""
        now = _EPOCH + now_ms * _MS
        midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
        first = midnight if self is Period.DAY else midnight.replace(day=1)
        return (first - _EPOCH) // _MS

    def end(self, start_ms: int) -> datetime:
        """When the next one begins."""
        start = _EPOCH + start_ms * _MS
        if self is Period.DAY:
            return start + timedelta(days=1)
        return (start + timedelta(days=31)).replace(day=1)


class Unit(StrEnum):
    """What a budget is counted in."""

    USD = "usd"
    TOKENS = "tokens"

    def shown(self, amount: float) -> str:
        if self is Unit.TOKENS:
            return f"{amount:,.0f} tokens"
        # Cents say nothing about a budget of a tenth of one.
        return f"${amount:,.2f}" if amount >= 1 or amount == 0 else f"${amount:.6f}"


@dataclass(frozen=True, slots=True)
class Spent:
    """What was granted in the period that began at ``start_ms``."""

    start_ms: int = 0
    tokens: int = 0
    nano_usd: int = 0


@dataclass(frozen=True, slots=True)
class Spending:
    """What was granted today and this month, to all users of the account."""

    day: Spent
    month: Spent

    def plus(self, tokens: int, nano_usd: int) -> "Spending":
        """Add to the counts, or subtract where they were too high."""
        return Spending(_plus(self.day, tokens, nano_usd), _plus(self.month, tokens, nano_usd))


NOTHING_SPENT: Final = Spending(Spent(), Spent())


def _plus(spent: Spent, tokens: int, nano_usd: int) -> Spent:
    return replace(
        spent,
        tokens=max(0, spent.tokens + tokens),
        nano_usd=max(0, spent.nano_usd + nano_usd),
    )


def rolled(spending: Spending, *, now_ms: int) -> Spending:
    """Start a new day or month if it is time; the result must be stored.

    After a clock was set back, what lies ahead counts as if it were now: no period gets more than
    its budget, and nobody waits for longer than to the end of one.
    """
    return Spending(
        _rolled(spending.day, Period.DAY.start(now_ms)),
        _rolled(spending.month, Period.MONTH.start(now_ms)),
    )


def _rolled(spent: Spent, start_ms: int) -> Spent:
    return Spent(start_ms) if spent.start_ms < start_ms else replace(spent, start_ms=start_ms)


@dataclass(frozen=True, slots=True)
class BudgetUse:
    """How much of one budget is used, and when it starts anew."""

    period: Period
    unit: Unit
    used: float
    allowed: float
    until: datetime

    @property
    def percent(self) -> float:
        return 100 * self.used / self.allowed

    @property
    def is_spent(self) -> bool:
        """Nothing is granted before ``until``."""
        return self.used >= self.allowed

    @property
    def setting(self) -> str:
        """The variable that sets it."""
        return f"EMBED_BUDGET_{self.unit.upper()}_PER_{self.period.upper()}"

    @property
    def share(self) -> str:
        """The used part of the total, in words."""
        return f"{self.unit.shown(self.used)} of {self.unit.shown(self.allowed)}"

    def __str__(self) -> str:
        end = f"{self.until:%Y-%m-%d %H:%M} UTC"
        if not self.is_spent:
            return f"{self.share} of the {self.period} are used, until {end}"
        return (
            f"the budget of the {self.period} is used: {self.share}; it goes on at {end}, sooner "
            f"if {self.setting} is raised"
        )


@dataclass(frozen=True, slots=True)
class Budget:
    """What may be spent on an account; what is not set is not limited."""

    price: Price = UNKNOWN
    usd_per_day: float | None = None
    usd_per_month: float | None = None
    tokens_per_day: int | None = None
    tokens_per_month: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether anything is limited."""
        return any(allowed is not None for *_, allowed in self.parts())

    @property
    def tokens_per_request(self) -> int | None:
        """Tokens that a request should not exceed, so that no budget is exceeded by much."""
        price = self.price.usd_per_million
        most = [
            allowed if unit is Unit.TOKENS else allowed * 1_000_000 / (price or 1)
            for _, unit, allowed in self.parts()
            if allowed is not None and (unit is Unit.TOKENS or price)
        ]
        return max(1, int(min(most) / REQUESTS_PER_BUDGET)) if most else None

    def uses(self, spending: Spending) -> tuple[BudgetUse, ...]:
        """The state of each budget that is set; the spending must be ``rolled``."""
        return tuple(
            _use(period, unit, spending, allowed)
            for period, unit, allowed in self.parts()
            if allowed is not None
        )

    def spent(self, spending: Spending) -> BudgetUse | None:
        """The spent budget that blocks for longest, if any."""
        spent = [use for use in self.uses(spending) if use.is_spent]
        return max(spent, key=lambda use: use.until, default=None)

    def parts(self) -> Iterator[tuple[Period, Unit, float | None]]:
        """Every budget there can be, and how much it allows."""
        yield Period.DAY, Unit.USD, self.usd_per_day
        yield Period.MONTH, Unit.USD, self.usd_per_month
        yield Period.DAY, Unit.TOKENS, self.tokens_per_day
        yield Period.MONTH, Unit.TOKENS, self.tokens_per_month


NO_BUDGET: Final = Budget()


def corrected(spending: Spending, budget: Budget, *, counted: int, charged: int) -> Spending:
    """Replace what was counted for a request by what the provider charges."""
    price = budget.price
    money = price.nano_usd(charged) - price.nano_usd(counted)
    return spending.plus(charged - counted, money)


def _use(period: Period, unit: Unit, spending: Spending, allowed: float) -> BudgetUse:
    spent = spending.day if period is Period.DAY else spending.month
    used = spent.tokens if unit is Unit.TOKENS else spent.nano_usd / NANO
    return BudgetUse(period, unit, used, allowed, period.end(spent.start_ms))


def fullest(uses: tuple[BudgetUse, ...]) -> BudgetUse | None:
    """The budget of which the largest part is used."""
    return max(uses, key=lambda use: use.percent, default=None)
