"""What tells a text that a provider refuses from a provider that refuses everything."""

from dataclasses import dataclass
from typing import Final

PROBE_WORD: Final = "probe"
"""A text that no provider has a reason to refuse or to stumble over."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a provider refused a request, so that it can be compared."""

    kind: str
    """The status, and whether there is a code and a parameter."""
    words: frozenset[str]
    """Of message, code and parameter; without those of the texts, which any of them may quote, and
    without numbers."""

    def is_also(self, probe: "Refusal") -> bool:
        """Whether the probe was refused for the same reason.

        Its message may have more words: those that stand in the texts were left out of this one.
        """
        return self.kind == probe.kind and self.words <= probe.words
