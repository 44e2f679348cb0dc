"""The statements about plans: what was planned last, and what has been charged since."""

from typing import Final, LiteralString

SAVE_PLAN: Final[LiteralString] = """
MERGE (coverage:EmbedCoverage {name: $queue, model: $model})
SET coverage._lock = $token
WITH coverage, coalesce($now, datetime.realtime().epochMillis) AS now
OPTIONAL MATCH (counters:EmbedCounters {name: $queue})
SET coverage.plan_at = now, coverage.plan_tokens = $tokens, coverage.plan_nano_usd = $nano_usd,
    coverage.plan_since_tokens = coalesce(counters.tokens, 0),
    coverage.plan_since_nano_usd = coalesce(counters.cost_nano_usd, 0)
"""
"""Keep the last plan of a model beside what had been charged until then; safe to repeat."""

READ_PLAN: Final[LiteralString] = """
MATCH (coverage:EmbedCoverage {name: $queue, model: $model}) WHERE coverage.plan_at IS NOT NULL
OPTIONAL MATCH (counters:EmbedCounters {name: $queue})
RETURN coverage.plan_at AS at, coverage.plan_tokens AS tokens,
  coverage.plan_nano_usd AS nano_usd,
  coalesce(counters.tokens, 0) - coverage.plan_since_tokens AS charged_tokens,
  coalesce(counters.cost_nano_usd, 0) - coverage.plan_since_nano_usd AS charged_nano_usd
"""
"""The last plan, and what the counters have gained since."""
