"""The statements of the shared rate limiter."""

from typing import Final, LiteralString

LOCK_LIMITER: Final[LiteralString] = """
MERGE (limiter:EmbedLimiter {name: $name})
SET limiter._lock = $token
"""
"""Hold the limiter; the constraint on its name makes it one node for all."""

READ_LIMITER: Final[LiteralString] = """
OPTIONAL MATCH (limiter:EmbedLimiter {name: $name})
RETURN limiter {.*} AS limiter, coalesce($now, datetime.realtime().epochMillis) AS now
"""
"""The window and the time; null for a limiter that has not been used yet."""

WRITE_LIMITER: Final[LiteralString] = """
MATCH (limiter:EmbedLimiter {name: $name})
SET limiter += $properties
"""
"""Store what has changed about the locked limiter; null takes a property away.

Invariants: no interval holds more than the limit, and no pause is longer than ``LONGEST_HOLD``.
"""
