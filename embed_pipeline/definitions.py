"""Everything Dagster can see, listed by hand.

The settings are checked first: a wrong one stops the code location with the same message that
``embed-pipeline doctor`` prints.
"""

import logging

import dagster as dg

from embed_pipeline.defs.assets import graph_entities
from embed_pipeline.defs.jobs import initialise_schema
from embed_pipeline.defs.resources import Neo4jResource
from embed_pipeline.settings import load_settings, warnings

settings = load_settings()
for warning in warnings(settings):
    logging.getLogger(__name__).warning(warning)

defs = dg.Definitions(
    assets=[graph_entities],
    jobs=[initialise_schema],
    resources={"neo4j": Neo4jResource(uri=settings.neo4j_uri, database=settings.neo4j_database)},
)
