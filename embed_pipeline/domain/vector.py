"""A vector as it is kept: the 32-bit floats that a provider sends and Neo4j stores.

A Python list needs 32 bytes for each number, these need four. So vectors stay bytes from the answer
of the provider to the statement that writes them: 2,048 of 3,072 dimensions are 25 MB instead of
200.
"""

from array import array
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from hashlib import blake2b
from operator import itemgetter, mul
from typing import Final, NewType, cast

Vector = NewType("Vector", bytes)
"""Numbers of 32 bits in the byte order of the providers, which is that of every machine for which
the packages of this project are built; its length is not checked."""

MOST_DIMENSIONS: Final = 4_096
"""The longest vector that Neo4j can index."""
BYTES_PER_NUMBER: Final = 4
NOTHING: Final = Vector(b"")
"""Stands for what a provider sent where a vector should be, and is none."""

SAMPLED: Final = 16
"""Numbers of a vector that its print is made of, the first and the last among them."""

_TINY: Final = 14
_HUGE: Final = 124
"""Seven bits of the exponent: 2^-99 and 2^121, so that no sum of 4,096 squares leaves a double or
falls below what an index takes for zero. NaN and infinities have 127."""
_NOT_HUGE: Final = bytes(b for b in range(256) if b & 127 < _HUGE)
_ALL_TINY: Final = bytes(b for b in range(256) if b & 127 < _TINY)


def vector_of(numbers: Iterable[float]) -> Vector:
    """Pack numbers; what a 32-bit float cannot hold becomes infinite.

    Raises:
        TypeError: something is not a number.
        OverflowError: a whole number is beyond every float.
    """
    return Vector(array("f", numbers).tobytes())


def numbers_of(vector: Vector) -> list[float]:
    """Unpack; takes eight times the memory, so for few at a time."""
    return cast("list[float]", memoryview(vector).cast("f").tolist())


def mean_of(vectors: Sequence[Vector], weights: Sequence[int]) -> Vector:
    """The vector of a text in pieces: the mean of theirs, of length 1; of one piece its own.

    Each weighs as many tokens as it has: three words at the end say less than a page.
    """
    if len(vectors) == 1:
        return vectors[0]
    numbers = map(numbers_of, vectors)
    sums = [sum(map(mul, row, weights)) for row in zip(*numbers, strict=True)]
    norm = sum(number * number for number in sums) ** 0.5
    return vector_of(number / norm if norm else 0.0 for number in sums)


def dimensions_of(vector: Vector) -> int:
    return len(vector) // BYTES_PER_NUMBER


def can_be_found(vector: Vector) -> bool:
    """Whether a vector index accepts it: it is finite and not zero.

    Looks at the byte of each number that holds sign and exponent: 2 µs for 1,536 dimensions, where
    the norm of the numbers takes 30.
    """
    exponents = vector[BYTES_PER_NUMBER - 1 :: BYTES_PER_NUMBER]
    is_finite = not exponents.translate(None, _NOT_HUGE)
    return is_finite and bool(exponents.translate(None, _ALL_TINY))


def print_of(vector: Vector) -> int:
    """The print stored beside a vector: 64 bits over ``SAMPLED`` of its numbers.

    Tells whether another vector was written since; those of two programs or models
    differ in every number. Measured for a page of 500 with 1,536 dimensions: a sample costs the
    scan no more than ``size()`` (61 and 68 ms: Neo4j reads an array as a whole anyway), a sum over
    all numbers 80 ms, and sending all numbers to be hashed here 2,463 ms.
    """
    if not vector:
        return 0
    length = dimensions_of(vector)
    numbers = memoryview(vector)[: length * BYTES_PER_NUMBER].cast("I")
    return _digest(array("I", _sampler(length - 1)(numbers)).tobytes())


def print_of_sample(numbers: Sequence[float] | None) -> int | None:
    """The print of a stored vector of which only the sample was read."""
    if not numbers:
        return None
    try:
        return _digest(vector_of(numbers))
    except (OverflowError, TypeError):
        return None


@cache
def _sampler(last: int) -> Callable[[Sequence[int]], tuple[int, ...]]:
    """Picks the sampled numbers of a vector of this length: 2 µs, slices took 7."""
    return itemgetter(*(i * last // (SAMPLED - 1) for i in range(SAMPLED)))


def _digest(sampled: bytes) -> int:
    return int.from_bytes(blake2b(sampled, digest_size=8).digest(), "big", signed=True)
