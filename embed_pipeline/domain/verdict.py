"""What a check found."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from embed_pipeline.domain.checks import Check, Severity


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of a check; ``passed`` is ``None`` where it could not be looked at yet."""

    check: Check
    passed: bool | None
    message: str
    figures: Mapping[str, float] = field(default_factory=dict)
    milder: bool = False

    @property
    def severity(self) -> Severity:
        """The severity if it has not passed."""
        return Severity.WARN if self.milder or self.passed is None else self.check.severity
