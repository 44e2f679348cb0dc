"""The code location of this project: what ``workspace.yaml`` names.

The settings are checked first: a wrong one stops the code location with the same message that
``embed-pipeline doctor`` prints.
"""

# ruff: noqa: E402 - the libraries are loaded by what follows
from embed_pipeline.lean import load_libraries_alone

load_libraries_alone()

from embed_pipeline.defs.build import build_location
from embed_pipeline.logs import log_to_stderr
from embed_pipeline.settings.embeddings import load_embeddings, log_all_warnings

log_to_stderr()
embeddings = load_embeddings()
log_all_warnings(embeddings)
defs = build_location(*embeddings)
