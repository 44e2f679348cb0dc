"""Where the lines of the package's loggers go inside Dagster's processes."""

import logging
from typing import Final

LOGGER: Final = "embed_pipeline"
FORMAT: Final = "%(asctime)s %(name)s %(levelname)s %(message)s"


def log_to_stderr() -> None:
    """Write lines about single jobs to stderr, which Dagster keeps beside each run.

    Not into its event log: a line there costs milliseconds and stays for ever.
    """
    logger = logging.getLogger(LOGGER)
    if logger.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(logging.Formatter(FORMAT))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
