"""Make ``.venv`` from ``requirements.lock``; called by ``scripts/setup.sh``.

Only the standard library is there yet. Packages are installed by uv, which comes from the same
lock (18 s for everything on an empty cache, where pip took 116 s) and compiles them: Dagster's
processes start two to three times slower without.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from datetime import UTC, datetime
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
BIN = VENV / "bin"
LOCK = ROOT / "requirements.lock"
READY = VENV / ".ready"
NEEDED_BYTES = 2_000_000_000
"""The environment (0.9 GB) and what uv keeps in the user's cache."""

NO_PACKAGES = (
    "The packages could not be installed; the reason stands above.\n"
    "Without a network, or behind a proxy or a mirror: set HTTPS_PROXY, or PIP_INDEX_URL, then "
    "run the command again. A hash that differs means a damaged or changed download: try again, "
    "and do not use it if it stays so."
)


def main() -> None:
    """Make the environment, or bring it up to date."""
    is_new = not (BIN / "python").exists()
    READY.unlink(missing_ok=True)
    try:
        check_disk()
        begin(f"{'Making' if is_new else 'Updating'} .venv with Python {sys.version.split()[0]}")
        if is_new:
            make_venv()
        install_packages()
        copy_env_file()
    except BaseException:
        # Half an environment would look like a whole one to the next command.
        if is_new:
            shutil.rmtree(VENV, ignore_errors=True)
        raise
    READY.touch()
    end("ready: .venv/bin/embed-pipeline --help")


def check_disk() -> None:
    """Refuse to begin what cannot end."""
    free = shutil.disk_usage(ROOT).free
    if free < NEEDED_BYTES:
        stop(
            f"{free / 1e9:.1f} GB are free in {ROOT}, {NEEDED_BYTES / 1e9:.0f} GB are needed. "
            "Make room, then run the command again."
        )


def make_venv() -> None:
    """Make an empty environment with pip in it."""
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        venv.create(VENV, with_pip=True, symlinks=True)
    except subprocess.CalledProcessError:
        stop(
            "This Python cannot make environments with pip in them (ensurepip is missing).\n"
            "On Debian and Ubuntu: apt install python3-venv. Then run the command again."
        )


def install_packages() -> None:
    """Install uv with pip, everything else with uv, and this project itself."""
    if not (BIN / "uv").exists():
        install_uv()
    uv = [str(BIN / "uv"), "pip"]
    environment = uv_environment()
    # Without the list of 280 packages that nobody reads; errors are printed all the same.
    sync = ["sync", "--quiet", "--require-hashes", "--compile-bytecode", str(LOCK)]
    # The build back end is in the lock too, so nothing unpinned is fetched for it.
    project = ["install", "--quiet", "--no-deps", "--no-build-isolation", "--editable", str(ROOT)]
    for arguments in (sync, project):
        result = subprocess.run(
            [*uv, *arguments], env=environment, check=False, stderr=subprocess.PIPE, text=True
        )
        if result.returncode:
            print(f"\n{result.stderr.rstrip()}", file=sys.stderr)
            stop(NO_PACKAGES)


def install_uv() -> None:
    """Take uv's own lines out of the lock, so that its hash is checked as well."""
    lines = re.search(r"^uv==.*?(?=^\S)", LOCK.read_text() + "end", re.MULTILINE | re.DOTALL)
    if lines is None:
        stop("requirements.lock does not hold uv; restore the file: git checkout requirements.lock")
    with tempfile.TemporaryDirectory() as folder:
        requirement = Path(folder) / "uv.txt"
        requirement.write_text(lines[0])
        pip = [str(BIN / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        pip += ["--disable-pip-version-check", "--retries", "2", "--require-hashes"]
        command = [*pip, "--requirement", str(requirement)]
        result = subprocess.run(command, check=False, capture_output=True, text=True)
    if result.returncode:
        errors = [line for line in result.stderr.splitlines() if line.startswith("ERROR")]
        print("\n" + "\n".join(errors or result.stderr.splitlines()[-3:]), file=sys.stderr)
        stop(NO_PACKAGES)


def uv_environment() -> dict[str, str]:
    """Give uv the index and the certificates that pip and the system are set up with."""
    environment = {"UV_SYSTEM_CERTS": "true", **os.environ, "VIRTUAL_ENV": str(VENV)}
    index = os.environ.get("PIP_INDEX_URL")
    if index and not any(name in os.environ for name in ("UV_DEFAULT_INDEX", "UV_INDEX_URL")):
        environment["UV_DEFAULT_INDEX"] = index
    return environment


def copy_env_file() -> None:
    """Start the user's own settings from the example; never touch existing ones.

    The history begins today: Dagster would show every day before it as missing. An environment that
    says otherwise wins, as everywhere.
    """
    target = ROOT / ".env"
    if not target.exists():
        target.touch(mode=0o600)
        example = (ROOT / ".env.example").read_text()
        today = f"{datetime.now(tz=UTC):%Y-%m-%d}"
        own = f"\nEMBED_HISTORY_FROM=${{EMBED_HISTORY_FROM:-{today}}}\n"
        target.write_text(re.sub(r"\n#EMBED_HISTORY_FROM=.*\n", own, example))


def begin(text: str) -> None:
    """Say what happens now, on the line that ``end`` completes."""
    print(f"▸ {text}, your settings in .env: half a minute … ", end="", flush=True)


def end(text: str) -> None:
    """Complete the line."""
    print(text, flush=True)


def stop(message: str) -> NoReturn:
    """End with a message and no traceback."""
    print(f"\n✗ {message}", file=sys.stderr)
    raise SystemExit(2)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        print("\n✗ Stopped; nothing half-made is left.", file=sys.stderr)
        raise SystemExit(130) from None
    except OSError as error:
        print(
            f"\n✗ {error.strerror}: {error.filename}. Mend that, then try again.", file=sys.stderr
        )
        raise SystemExit(2) from None
