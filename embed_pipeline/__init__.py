"""Keep every entity of a Neo4j knowledge graph embedded, with Dagster."""
