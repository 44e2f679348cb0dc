"""The statements that ask a graph what it calls its labels, properties and relationships."""

from typing import Final, LiteralString

LABELS: Final[LiteralString] = """
CALL db.labels() YIELD label
WHERE NOT label STARTS WITH 'Embed'
RETURN label ORDER BY label LIMIT 100
"""
"""The labels of others."""

COUNT_LABEL: Final[LiteralString] = "MATCH (entity:%label%) RETURN count(entity) AS nodes"
"""One hit of the count store."""

COUNT_PIECES: Final[LiteralString] = "MATCH (piece:EmbedChunk) RETURN count(piece) AS nodes"
"""Nodes of ours that have a label of others."""

PROPERTIES: Final[LiteralString] = """
MATCH (entity:%label%)
WITH entity LIMIT 1000
UNWIND keys(entity) AS name
RETURN name, count(*) AS nodes ORDER BY nodes DESC, name LIMIT 100
"""
"""The properties of a thousand nodes of the label; reads no values."""

TYPES: Final[LiteralString] = """
CALL db.relationshipTypes() YIELD relationshipType AS type
WHERE NOT type IN ['FROM_DOCUMENT', 'NEXT_CHUNK']
RETURN type ORDER BY type
"""
"""The types of relationships, without those of pieces."""

COUNT_TYPE: Final[LiteralString] = "MATCH ()%dependants%() RETURN count(relation) AS relations"
"""One hit of the count store, for a shape that names one type and one direction."""
