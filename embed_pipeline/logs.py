"""Where the lines of the package's loggers go, and what cannot get into them."""

import logging
from typing import Final

from embed_pipeline.domain.printable import one_line
from embed_pipeline.domain.redact import redact

LOGGER: Final = "embed_pipeline"
FORMAT: Final = "%(asctime)s %(name)s %(levelname)s %(message)s"


class OneLineFormatter(logging.Formatter):
    """A record is one line, whatever somebody has named an entity or a worker.

    Secrets are masked where errors are made; what looks like one is masked here once more.
    """

    def format(self, record: logging.LogRecord) -> str:
        """Write the record, a traceback included, without anything that a terminal obeys."""
        return one_line(redact(super().format(record)))


def log_to_stderr() -> None:
    """Write lines about single jobs to stderr, which Dagster keeps beside each run.

    Not into its event log: a line there costs milliseconds and stays for ever.
    """
    logger = logging.getLogger(LOGGER)
    if logger.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter(FORMAT))
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
