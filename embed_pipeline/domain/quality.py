"""Whether stored vectors are any good, judged by the graph's own edges.

What is joined by an edge should be nearer in meaning than what is not. The AUC says how often that
holds for a random edge against a random pair without one whose nodes have the same degrees: 1 is
always, 0.5 is chance. Measured on the sample graph: 0.83 to 0.87 for real models, 0.51 for mock
vectors, and every kind of damage but slight noise lowers it by 0.1 or more.
"""

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from statistics import median
from typing import Any, Final

import numpy as np

PAIRS: Final = 400
"""Edges of a sample, and as many pairs without one: the standard deviation is then 0.012."""
ENOUGH: Final = 200
"""Pairs below which a low value may be chance."""
FEWEST: Final = 30
"""Pairs below which nothing is said; of one type, too."""
FLOOR: Final = 0.6
FALL: Final = 0.05
SAME: Final = 0.9999
"""Cosine from which on two vectors count as one."""
ODD_LENGTH: Final = 0.1
"""Share by which the length of a vector may differ from that of most others."""
MOST_ODD: Final = 0.01
MOST_DUPLICATES: Final = 0.05
MOST_HUB: Final = 0.2
DRIFTED: Final = 0.99
PROBES: Final = 20
REMEMBERED: Final = 30
"""Readings whose median the next one is compared with."""

Matrix = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class Edge:
    """Two nodes by their place among the vectors, and what joins them."""

    start: int
    end: int
    type: str = ""


@dataclass(frozen=True, slots=True)
class Auc:
    """How often an edge is nearer than a pair without one, with the interval of 95 %."""

    value: float
    low: float
    high: float
    edges: int


@dataclass(frozen=True, slots=True)
class Quality:
    """What a sample of the vectors says about all of them."""

    model: str
    auc: Auc | None
    """None where there are too few edges between embedded entities."""
    words: float | None = None
    """The same of the words that two texts share: whether edges mean anything at all."""
    types: Mapping[str, Auc] = field(default_factory=dict)
    vectors: int = 0
    odd_lengths: float = 0.0
    """Share of vectors that are much longer or shorter than most."""
    duplicates: float = 0.0
    """Share of vectors that equal that of another text."""
    hub: float = 0.0
    """Share of entities whose nearest neighbour is one and the same."""
    drift: float | None = None
    """The smallest cosine of texts that were embedded again with their stored vectors."""
    at: datetime | None = None
    earlier: tuple[float, ...] = ()
    """The values before this one, the oldest first."""

    @property
    def usual(self) -> float | None:
        """The median of the values before."""
        return median(self.earlier) if self.earlier else None


def auc_of(positive: Sequence[float] | Matrix, negative: Sequence[float] | Matrix) -> Auc:
    """Compare two samples of similarities; the interval is that of DeLong."""
    high, low = np.asarray(positive, dtype=float), np.asarray(negative, dtype=float)
    above = (high[:, None] > low[None, :]) + 0.5 * (high[:, None] == low[None, :])
    value = float(above.mean())
    spread = above.mean(axis=1).var(ddof=1) / len(high) + above.mean(axis=0).var(ddof=1) / len(low)
    margin = 1.96 * float(spread) ** 0.5
    return Auc(value, max(0.0, value - margin), min(1.0, value + margin), len(high))


def measure(
    model: str,
    vectors: Sequence[Sequence[float]],
    hashes: Sequence[str],
    texts: Sequence[str],
    edges: Sequence[Edge],
    non_edges: Sequence[Edge],
) -> Quality:
    """Judge a sample of vectors by its edges."""
    if len(edges) < FEWEST or len(non_edges) < FEWEST:
        return Quality(model, None, vectors=len(vectors))
    matrix = np.asarray(vectors, dtype=float)
    lengths = np.linalg.norm(matrix, axis=1)
    units = matrix / np.where(lengths == 0, 1, lengths)[:, None]
    near, far = _cosines(units, edges), _cosines(units, non_edges)
    words = [frozenset(re.findall(r"\w+", text.casefold())) for text in texts]
    by_type: dict[str, list[float]] = {}
    for edge, cosine in zip(edges, near, strict=True):
        by_type.setdefault(edge.type, []).append(cosine)
    usual = float(np.median(lengths))
    duplicates, hub = _crowding(units, hashes)
    return Quality(
        model,
        auc_of(near, far),
        words=auc_of(_overlaps(words, edges), _overlaps(words, non_edges)).value,
        types={
            name: auc_of(found, far)
            for name, found in sorted(by_type.items())
            if len(found) >= FEWEST
        },
        vectors=len(vectors),
        odd_lengths=float((abs(lengths - usual) > ODD_LENGTH * usual).mean()),
        duplicates=duplicates,
        hub=hub,
    )


def smallest_cosine(stored: Sequence[Sequence[float]], anew: Sequence[Sequence[float]]) -> float:
    """How far the vectors of the same texts have moved."""
    one, other = np.asarray(stored, dtype=float), np.asarray(anew, dtype=float)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / np.where(norms == 0, 1, norms)).min())


def _cosines(units: Matrix, pairs: Sequence[Edge]) -> list[float]:
    starts, ends = [pair.start for pair in pairs], [pair.end for pair in pairs]
    return (units[starts] * units[ends]).sum(axis=1).tolist()


def _overlaps(words: Sequence[frozenset[str]], pairs: Sequence[Edge]) -> list[float]:
    """The words that two texts share, rare ones for more than frequent ones."""
    texts = Counter(word for found in words for word in found)
    shared = (words[pair.start] & words[pair.end] for pair in pairs)
    return [sum(1 / texts[word] for word in found) for found in shared]


def _crowding(units: Matrix, hashes: Sequence[str]) -> tuple[float, float]:
    """Shares of vectors that another text has too, and of the most frequent nearest neighbour."""
    cosines = units @ units.T
    np.fill_diagonal(cosines, -1.0)
    texts = np.asarray(hashes)
    # The same text has the same vector, and says nothing about the others.
    cosines[texts[:, None] == texts[None, :]] = -1.0
    nearest = cosines.argmax(axis=1).tolist()
    most = Counter(nearest).most_common(1)[0][1]
    return float((cosines.max(axis=1) > SAME).mean()), most / len(nearest)
