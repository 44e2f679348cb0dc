"""Foretells what many drains do, from the committed costs; needs no database.

``python -m benchmarks.simulation --compare`` says what one machine should reach (``python -m
benchmarks --only drains`` measures it as well). ``--plots`` runs all studies (two minutes) and
writes docs/scaling-results.md and the pictures of docs/scaling.md; ``--whole`` lets a hundred
million jobs pass, from the first to the last (a minute or two).
"""

import argparse
import sys

from benchmarks.plan import FULL
from benchmarks.simulation import compare, pictures, report
from benchmarks.simulation.costs import Costs
from benchmarks.simulation.run import simulate
from benchmarks.simulation.studies import DEATHS, REMEDIES, STUDIES, WHOLE, recoveries


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.simulation", description=__doc__)
    wishes = parser.add_mutually_exclusive_group(required=True)
    wishes.add_argument("--compare", action="store_true")
    wishes.add_argument("--plots", action="store_true")
    wishes.add_argument("--whole", action="store_true")
    arguments = parser.parse_args()
    costs = Costs.read()
    if arguments.compare:
        for line in compare.table(costs, FULL.entities):
            say(line)
    elif arguments.whole:
        say(report.whole(simulate(WHOLE, costs)))
    else:
        _study(costs)


def _study(costs: Costs) -> None:
    studies = {}
    for study in STUDIES:
        say(study.name)
        studies[study.name] = list(study.results(costs))
    say("what changes when one thing does")
    changed = {name: simulate(scenario, costs) for name, scenario in REMEDIES.items()}
    say("deaths")
    deaths = {name: list(recoveries(name, costs)) for name in DEATHS}
    report.write(costs, studies, changed, deaths)
    pictures.draw(studies, deaths)


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
