"""Checks larger models than the tests have time for: ``python -m tests.proof.model``."""

import os
import sys

from tests.proof.model.tlc import Model, check

LARGER = {
    "2 workers, 2 changes, a fault and a pause": {"Pauses": "1"},
    "2 workers, a change, 2 faults and a pause": {"Changes": "1", "Faults": "2", "Pauses": "1"},
    "2 workers, 3 attempts, a change, a fault and 2 pauses": {
        "MaxAttempts": "3",
        "Changes": "1",
        "Pauses": "2",
    },
    "3 workers, 3 attempts, a change, a fault and a pause": {
        "Workers": "{a, b, c}",
        "MaxAttempts": "3",
        "Changes": "1",
        "Pauses": "1",
    },
}


def main() -> int:
    """Print a line for every model; fails if a promise is broken, and shows how."""
    for name, constants in LARGER.items():
        model = Model("Promises", "EmbedLease.cfg", constants)
        verdict = check(model, workers=os.cpu_count() or 1)
        sys.stdout.write(f"{name}: {verdict.summary}\n")
        sys.stdout.flush()
        if verdict.broken:
            sys.stdout.write(verdict.output)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
