"""The fields of an entry of ``embeddings.yaml``."""

from typing import Final

VARIABLES: Final = {
    "name": "EMBED_QUEUE",
    "label": "EMBED_ENTITY_LABEL",
    "key": "EMBED_ENTITY_KEY",
    "version": "EMBED_ENTITY_VERSION",
    "valid_to": "EMBED_ENTITY_VALID_TO",
    "order": "EMBED_ENTITY_ORDER",
    "type": "EMBED_ENTITY_TYPE",
    "observations": "EMBED_ENTITY_OBSERVATIONS",
    "text": "EMBED_ENTITY_TEMPLATE",
    "relations_types": "EMBED_ENTITY_RELATIONS_TYPES",
    "relations_direction": "EMBED_ENTITY_RELATIONS_DIRECTION",
    "relations_most": "EMBED_ENTITY_RELATIONS_MOST",
    "relations_word": "EMBED_ENTITY_RELATIONS_WORD",
    "relations_names": "EMBED_ENTITY_RELATIONS_NAMES",
    "relations_delay_ms": "EMBED_RELATIONS_DELAY_MS",
    "pieces": "EMBED_PIECES",
    "pieces_tokens": "EMBED_PIECES_TOKENS",
    "pieces_most": "EMBED_PIECES_MOST",
    "vector": "EMBED_ENTITY_VECTOR",
    "index": "EMBED_VECTOR_INDEX",
    "provider": "EMBEDDING_PROVIDER",
    "model": "EMBEDDING_MODEL",
    "dimensions": "EMBEDDING_DIMENSIONS",
    "account": "EMBEDDING_RATE_LIMIT_NAME",
    "mode": "EMBEDDING_MODE",
    "batch_least": "EMBEDDING_BATCH_LEAST",
    "drains_at_once": "EMBED_DRAINS_AT_ONCE",
    "standby": "EMBED_STANDBY",
    "objective_age_ms": "EMBED_OBJECTIVE_AGE_MS",
    "objective_failed_percent": "EMBED_OBJECTIVE_FAILED_PERCENT",
    "objective_coverage_percent": "EMBED_OBJECTIVE_COVERAGE_PERCENT",
}
"""What an entry can say, and the variable that says it where there is one embedding."""
FIELDS: Final = {variable: name for name, variable in VARIABLES.items()}
