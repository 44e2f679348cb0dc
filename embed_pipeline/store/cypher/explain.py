"""The statements that look around an entity; written for a shape by ``for_shape``."""

from typing import Final, LiteralString

DEPENDANTS: Final[LiteralString] = """
MATCH (entity:%label% {%key%: $key}) USING INDEX entity:%label%(%key%)
WHERE %current_entity%
MATCH (entity)%dependants%(other:%label%)
WITH entity, relation, other LIMIT $most
RETURN count(*) AS looked, head(collect(%named%)) AS name,
  collect(DISTINCT CASE WHEN relation.%valid_to% IS NULL AND %current_other% AND other.%key% <> $key
    THEN other.%key% END) AS keys
"""
"""The current entities in whose texts the name of this one may stand; bounded, as a hub has many.
``looked`` says whether that was all.
"""

RELATIONS: Final[LiteralString] = """
UNWIND $keys AS key
MATCH (entity:%label% {%key%: key}) USING INDEX entity:%label%(%key%)
WHERE %current_entity%
RETURN key, %neighbours% AS relations
"""
"""The neighbours of entities, as the shape chooses them, whether or not they are in the text."""
