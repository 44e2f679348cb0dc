"""The ``embed-pipeline`` command: a module per group of commands."""
