"""The front door for Python programs; ``from embed_pipeline import Queue`` opens it."""
