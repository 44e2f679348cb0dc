"""Where the lines of the package's loggers go, and what cannot get into them."""

import logging
from types import TracebackType
from typing import Final

from embed_pipeline.domain.redact import one_line, redact, stack_of
from embed_pipeline.settings.secrets import known_secrets

LOGGER: Final = "embed_pipeline"
FORMAT: Final = "%(asctime)s %(name)s %(levelname)s %(message)s"


class OneLineFormatter(logging.Formatter):
    """One line per record, whatever an entity or a worker is called.

    Secrets are masked where errors are made; what is known or looks like one is masked here once
    more, and an error shows its stack without the words of other libraries.
    """

    def __init__(self) -> None:
        super().__init__(FORMAT)
        self._secrets = known_secrets()

    def format(self, record: logging.LogRecord) -> str:
        """Format the record and its traceback without control characters."""
        return one_line(redact(super().format(record), self._secrets))

    def formatException(  # noqa: N802 - the name that logging calls
        self,
        ei: tuple[type[BaseException], BaseException, TracebackType | None]
        | tuple[None, None, None],
    ) -> str:
        """The stack of an error, without messages of libraries."""
        return stack_of(ei[1]) if ei[1] is not None else ""


def log_to_stderr() -> None:
    """Write lines about single jobs to stderr, which Dagster keeps beside each run.

    Not into its event log: a line there costs milliseconds and stays for ever.
    """
    logger = logging.getLogger(LOGGER)
    if logger.handlers:
        return
    handler = logging.StreamHandler()
    handler.setFormatter(OneLineFormatter())
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    # The errors of forgotten tasks, which asyncio would print with all that they quote.
    logging.getLogger("asyncio").addHandler(handler)
