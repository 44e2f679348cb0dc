"""The arithmetic of vectors behind ``domain.quality``."""

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from embed_pipeline.domain.comparison import Answered, K, Question
from embed_pipeline.domain.quality import FEWEST, ODD_LENGTH, SAME, Auc, Edge, Quality, Sample

Matrix = np.ndarray[Any, np.dtype[np.float64]]


def auc_of(positive: Sequence[float] | Matrix, negative: Sequence[float] | Matrix) -> Auc:
    """Compare two samples of similarities; the interval is that of DeLong."""
    high, low = np.asarray(positive, dtype=float), np.asarray(negative, dtype=float)
    above = (high[:, None] > low[None, :]) + 0.5 * (high[:, None] == low[None, :])
    value = float(above.mean())
    spread = above.mean(axis=1).var(ddof=1) / len(high) + above.mean(axis=0).var(ddof=1) / len(low)
    margin = 1.96 * float(spread) ** 0.5
    return Auc(value, max(0.0, value - margin), min(1.0, value + margin), len(high))


def measure(model: str, sample: Sample, probed: Sample | None = None) -> Quality:
    """Judge a sample of vectors by its edges; by those of ``probed`` if they are in the texts."""
    vectors = sample.vectors
    pairs = probed or sample
    edges, non_edges = pairs.edges, pairs.non_edges
    if len(edges) < FEWEST or len(non_edges) < FEWEST:
        return Quality(model, None, vectors=len(vectors))
    matrix = np.asarray(vectors, dtype=float)
    lengths = np.linalg.norm(matrix, axis=1)
    units = _units(vectors)
    near, far = cosines_of(pairs.vectors, edges), cosines_of(pairs.vectors, non_edges)
    words = [frozenset(re.findall(r"\w+", text.casefold())) for text in pairs.texts]
    by_type: dict[str, list[float]] = {}
    for edge, cosine in zip(edges, near, strict=True):
        by_type.setdefault(edge.type, []).append(cosine)
    usual = float(np.median(lengths))
    duplicates, hub = _crowding(units, sample.hashes)
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


def moved(
    stored: Sequence[float], *, away: Sequence[float], towards: Sequence[float]
) -> list[float]:
    """A stored vector moved by the difference of two texts; damage, if any, stays in it."""
    return (np.asarray(stored) + np.asarray(towards) - np.asarray(away)).tolist()


def cosines_of(vectors: Sequence[Sequence[float]], pairs: Sequence[Edge]) -> list[float]:
    """The similarity of each pair."""
    return _cosines(_units(vectors), pairs) if pairs else []


def answered(
    asked: Sequence[Sequence[float]],
    texts: Sequence[Sequence[float]],
    questions: Sequence[Question],
) -> Answered:
    """How near the answers of questions are, by both sets of vectors.

    Of several answers the nearest counts; what a question names is neither answer nor rival.
    """
    cosines = _units(asked) @ _units(texts).T
    values: list[float] = []
    among: list[bool] = []
    for row, question in zip(cosines, questions, strict=True):
        answers = sorted(question.answers)
        apart = answers if question.named is None else [*answers, question.named]
        rivals = np.delete(row, apart)
        nearest = row[answers].max()
        values.append(float((rivals < nearest).mean() + 0.5 * (rivals == nearest).mean()))
        among.append(bool((rivals > nearest).sum() < K))
    value = float(np.mean(values))
    margin = 1.96 * float(np.std(values, ddof=1)) / len(values) ** 0.5
    auc = Auc(value, max(0.0, value - margin), min(1.0, value + margin), len(values))
    return Answered(auc, float(np.mean(among)))


def _units(vectors: Sequence[Sequence[float]]) -> Matrix:
    matrix = np.asarray(vectors, dtype=float)
    lengths = np.linalg.norm(matrix, axis=1)
    return matrix / np.where(lengths == 0, 1, lengths)[:, None]


def smallest_cosine(stored: Sequence[Sequence[float]], anew: Sequence[Sequence[float]]) -> float:
    """The smallest similarity between two embeddings of the same texts."""
    one, other = np.asarray(stored, dtype=float), np.asarray(anew, dtype=float)
    norms = np.linalg.norm(one, axis=1) * np.linalg.norm(other, axis=1)
    return float(((one * other).sum(axis=1) / np.where(norms == 0, 1, norms)).min())


def _cosines(units: Matrix, pairs: Sequence[Edge]) -> list[float]:
    starts, ends = [pair.start for pair in pairs], [pair.end for pair in pairs]
    return (units[starts] * units[ends]).sum(axis=1).tolist()


def _overlaps(words: Sequence[frozenset[str]], pairs: Sequence[Edge]) -> list[float]:
    """The shared words of two texts, rare words weigh more."""
    texts = Counter(word for found in words for word in found)
    shared = (words[pair.start] & words[pair.end] for pair in pairs)
    return [sum(1 / texts[word] for word in found) for found in shared]


def _crowding(units: Matrix, hashes: Sequence[str]) -> tuple[float, float]:
    """The shares of duplicate vectors, and of the most frequent nearest neighbour."""
    cosines = units @ units.T
    np.fill_diagonal(cosines, -1.0)
    texts = np.asarray(hashes)
    # The same text has the same vector, and says nothing about the others.
    cosines[texts[:, None] == texts[None, :]] = -1.0
    nearest = cosines.argmax(axis=1).tolist()
    most = Counter(nearest).most_common(1)[0][1]
    return float((cosines.max(axis=1) > SAME).mean()), most / len(nearest)
