"""Hurts the queue in every way it claims to survive, and judges what is left.

``python -m tests.proof.chaos --seeds 1,2`` runs 10,000 jobs per seed, with ``--small`` 500, with
``--part 4`` a quarter of them and of all faults, and with ``--at-once 2`` two seeds side by side.
``--mutant NAME`` takes a guard out first and must end with violations; ``--mutants`` tries all of
them.
"""

import argparse
import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.proof.chaos.checker import check
from tests.proof.chaos.figures import figures, violations
from tests.proof.chaos.harness import run
from tests.proof.chaos.mutants import MUTANTS
from tests.proof.chaos.plan import FULL, SMALL, Size, part_of


def say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> int:
    arguments = _parser().parse_args()
    size = [*(["--small"] if arguments.small else []), "--part", str(arguments.part)]
    if arguments.mutants:
        unseen = [name for name in MUTANTS if _in_own_process(*size, "--mutant", name) == 0]
        say(f"mutants that nobody noticed: {', '.join(unseen) or 'none'}")
        return 1 if unseen else 0
    if len(arguments.seeds) > 1:
        with ThreadPoolExecutor(arguments.at_once) as pool:
            runs = [["--seeds", str(seed)] for seed in arguments.seeds]
            return max(pool.map(lambda run: _in_own_process(*size, *run), runs))
    [seed] = arguments.seeds
    whole = part_of(SMALL if arguments.small else FULL, arguments.part)
    return 1 if _run(whole, seed, mutant=arguments.mutant) else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.proof.chaos", description=__doc__)
    parser.add_argument("--seeds", "--seed", type=_numbers, default=[1])
    parser.add_argument("--at-once", type=int, default=1)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--part", type=int, default=1)
    parser.add_argument("--mutant", choices=list(MUTANTS))
    parser.add_argument("--mutants", action="store_true")
    return parser


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def _in_own_process(*arguments: str) -> int:
    """A run changes the modules of its process for good."""
    return subprocess.run(
        [sys.executable, "-m", "tests.proof.chaos", *arguments], check=False
    ).returncode


def _run(size: Size, seed: int, *, mutant: str | None) -> int:
    folder = Path(tempfile.mkdtemp(prefix=f"chaos-seed-{seed}-"))
    say(f"seed {seed}{', mutant ' + mutant if mutant else ''}: history in {folder}")
    ended = asyncio.run(run(size, seed=seed, folder=folder, mutant=mutant))
    found = check(ended.evidence)
    result = figures(ended.evidence, found, wall=ended.wall, provider=ended.provider)
    # At once, so that runs side by side do not mix their lines.
    load = f"load of the last 15 minutes: {os.getloadavg()[2]:.0f} on {os.cpu_count()} cores"
    say("\n".join([f"seed {seed} has ended", *violations(found), *result, load]))
    count = sum(map(len, found.values()))
    if count == 0:
        shutil.rmtree(folder)
    say(f"seed {seed}: {count} violations{f'; see {folder}' if count else ''}")
    return count


if __name__ == "__main__":
    raise SystemExit(main())
