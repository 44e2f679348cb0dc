"""Ask OSV for known holes in everything that requirements.lock pins; called by ``make audit``.

pip-audit ends with 0 when it was allowed to skip every package, and with 1 both for a hole and for
a service that does not answer. So its answer is read: 0 means that every package was looked up and
none has a known hole, 1 that there is one, 2 that something could not be looked up.

Arguments go to pip-audit: ``--ignore-vuln ID`` for a hole that does not concern us (say why beside
the call), ``--osv-url URL`` for a mirror.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

LOCK = Path(__file__).resolve().parent.parent / "requirements.lock"
OPTIONS = (
    "--strict",
    # The lock says it all: nothing is resolved, downloaded or built.
    "--disable-pip",
    "--require-hashes",
    "--vulnerability-service=osv",
    "--format=json",
    "--progress-spinner=off",
)


def main(arguments: list[str]) -> int:
    """Audit, say what was found, and return the exit code."""
    program = Path(sys.executable).with_name("pip-audit")
    command = [str(program), *OPTIONS, "--requirement", str(LOCK), *arguments]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        packages: list[dict[str, Any]] = json.loads(result.stdout)["dependencies"]
    except (ValueError, KeyError):
        packages = []
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    if skipped or not packages:
        what = ", ".join(skipped) or "everything in requirements.lock"
        [reason] = result.stderr.strip().splitlines()[-1:] or ["pip-audit gave no reason."]
        print(f"✗ Not checked: {what}. No answer is no good answer.\n{reason}", file=sys.stderr)
        return 2
    holes = [(package, hole) for package in packages for hole in package["vulns"]]
    for package, hole in holes:
        fixed = ", ".join(hole["fix_versions"]) or "no version yet"
        print(f"✗ {package['name']} {package['version']}: {hole['id']}, mended in {fixed}")
    if holes:
        return 1
    print(f"✓ {len(packages)} packages of requirements.lock, none with a known hole")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
