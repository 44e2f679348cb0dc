"""The queue in Neo4j: the only package that speaks Cypher."""
