"""A real Neo4j with APOC on this machine, without Docker, root, Maven or an installed Java."""
