"""The only place that talks to jgo, and so to Maven Central."""

import logging
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import mkdtemp

from embed_pipeline.devserver.errors import LocalServerError

ATTEMPTS = 3
TIMEOUT_SECONDS = 15

NO_NETWORK = (
    "cannot download {file} from Maven Central: {reason}\n"
    "Check the network (a proxy is taken from HTTPS_PROXY) and start again: files that are already "
    "here are kept. Or set NEO4J_URI to a Neo4j of your own."
)


def download(
    *,
    group: str,
    artifact: str,
    version: str,
    classifier: str,
    into: Path,
    on_bytes: Callable[[int], None],
) -> Path:
    """Fetch one jar into a new folder below ``into``; nothing is verified here.

    A try that fails on the way is repeated, since one of 224 requests often does. ``on_bytes``
    gets the bytes of each chunk, and minus what a failed try had counted. Whatever it raises ends
    the download: that is how a caller stops it.

    Raises:
        LocalServerError: Maven Central cannot be reached or does not have the file.
        OSError: the file cannot be written.
    """
    try:
        import requests
        from jgo.maven import MavenContext, PythonResolver
    except ImportError as error:
        raise LocalServerError(
            f"the local Neo4j needs a package that is not installed ({error.name}).\n"
            "Install it with: pip install 'embed-pipeline[server]'"
        ) from error
    # jgo warns on stderr about things that the checksum of the lock decides anyway.
    logging.getLogger("jgo").setLevel(logging.CRITICAL)

    counted = 0

    @contextmanager
    def count_chunks(_name: str, _size: int) -> Iterator[Callable[[int], None]]:
        def count(chunk: int) -> None:
            nonlocal counted
            counted += chunk
            on_bytes(chunk)

        yield count

    name = f"{artifact}-{version}{f'-{classifier}' if classifier else ''}.jar"
    for attempt in range(1, ATTEMPTS + 1):
        # A folder per try: jgo refuses to write over the rest of a broken one, and without
        # ``repo_cache`` it would fill ~/.m2.
        folder = Path(mkdtemp(dir=into))
        context = MavenContext(
            resolver=PythonResolver(progress_callback=count_chunks),
            repo_cache=folder,
            timeout=TIMEOUT_SECONDS,
        )
        component = context.project(group, artifact).at_version(version)
        try:
            return component.artifact(classifier).resolve()
        except (requests.RequestException, RuntimeError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            on_bytes(-counted)
            counted = 0
            # A host that drops packets does so the second time too.
            if attempt == ATTEMPTS or isinstance(error, requests.ConnectTimeout):
                reason = _in_one_line(error)
                raise LocalServerError(NO_NETWORK.format(file=name, reason=reason)) from error
            time.sleep(0.5 * attempt)
    raise AssertionError("the last attempt returns or raises")


def _in_one_line(error: Exception) -> str:
    """The innermost reason: ``requests`` wraps ``Connection refused`` in four objects."""
    text = str(error)
    if "not found in remote repositories" in text:
        return "the repository has no such file or did not answer as expected"
    cause: object = error
    while isinstance(cause, Exception) and cause.args and isinstance(cause.args[0], Exception):
        cause = cause.args[0]
    reason = getattr(cause, "reason", None) or cause
    return " ".join(str(reason).split())[:200]
