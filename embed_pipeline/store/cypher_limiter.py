"""The statements of the shared rate limiter."""

from typing import Final, LiteralString

LOCK_LIMITER: Final[LiteralString] = """
MERGE (limiter:EmbedLimiter {name: $name})
SET limiter._lock = $token
"""
"""Hold the limiter; the constraint on its name makes it one node for all."""

READ_LIMITER: Final[LiteralString] = """
MATCH (limiter:EmbedLimiter {name: $name})
RETURN limiter {.*} AS limiter, coalesce($now, datetime.realtime().epochMillis) AS now
"""

WRITE_LIMITER: Final[LiteralString] = """
MATCH (limiter:EmbedLimiter {name: $name})
SET limiter.starts = $starts, limiter.requests = $requests, limiter.tokens = $tokens,
    limiter.not_before = $not_before, limiter.held_at = $held_at
"""
"""Store the window of the locked limiter. Invariant: no interval holds more than the limit."""
