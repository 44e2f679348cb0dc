"""What the project looks after, as Dagster sees it."""

import dagster as dg

graph_entities = dg.AssetSpec(
    "graph_entities",
    group_name="knowledge_graph",
    kinds={"neo4j"},
    description="The entities of the knowledge graph. Written by its clients, never from here.",
)
