"""The statements about what operators did."""

from typing import Final, LiteralString

RECORD_ACTION: Final[LiteralString] = """
MERGE (audit:EmbedAudit {id: $id})
ON CREATE SET audit += $entry, audit.at = coalesce($now, datetime.realtime().epochMillis)
SET audit.count = $count, audit.complete = $complete
"""
"""Record an action in the transaction that does it.

Invariant: an entry is there if and only if something was changed, and ``count`` is what was
committed. Each transaction of a long action writes the sum so far, so that one which is repeated
after a lost commit adds nothing.
"""

COUNT_DELETED: Final[LiteralString] = """\
FOREACH (entry IN $entries |
  MERGE (audit:EmbedAudit {id: entry.id})
  ON CREATE SET audit += entry, audit.count = 0, audit.complete = false,
    audit.at = coalesce($now, datetime.realtime().epochMillis)
  SET audit.count = audit.count + jobs
)
"""
"""Record a batch of the clean-up, of which ``jobs`` were deleted: batches run on the server, so
only the server knows the sum. ``$entries`` is empty without an operator."""

FINISH_ACTION: Final[LiteralString] = """
MATCH (audit:EmbedAudit {id: $id}) SET audit.complete = true
"""

READ_ACTIONS: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) - $within AS since
RETURN COLLECT {
  MATCH (audit:EmbedAudit) USING INDEX audit:EmbedAudit(at)
  WHERE audit.at >= since AND ($actions IS NULL OR audit.action IN $actions)
  WITH audit ORDER BY audit.at DESC LIMIT $limit
  RETURN audit {.*}
} AS actions
"""
"""The newest actions first, in the order of the index: cost is that of the page."""

COUNT_OLD_ACTIONS: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) - $retention AS cutoff
MATCH (audit:EmbedAudit) WHERE audit.at < cutoff
RETURN count(audit) AS actions
"""

DELETE_OLD_ACTIONS: Final[LiteralString] = """
WITH coalesce($now, datetime.realtime().epochMillis) - $retention AS cutoff
MATCH (audit:EmbedAudit) WHERE audit.at < cutoff
WITH audit LIMIT $limit
DELETE audit
RETURN count(audit) AS actions
"""
"""Delete a page of what is past the retention. Invariant: nothing younger."""
