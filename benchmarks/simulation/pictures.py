"""Plots of the studies, as SVG that is the same for the same figures."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib import pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, NullLocator

from benchmarks.simulation.database import TIMEOUT
from benchmarks.simulation.run import Result
from benchmarks.simulation.studies import Recovery

FOLDER: Final = Path(__file__).parents[2] / "docs" / "images"
MINUTE: Final = 60

Series = Mapping[str, Sequence[Result]]


def draw(studies: Series, deaths: Mapping[str, Sequence[Recovery]]) -> None:
    """Write all pictures."""
    mpl.use("svg")
    # Ids of its own making would be others in every run.
    mpl.rcParams.update({"svg.hashsalt": "scaling", "font.size": 9, "axes.grid": True})
    _throughput(studies)
    _leases(studies)
    _recovery(deaths)


def _throughput(studies: Series) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for name, results in studies.items():
        axes.plot(_drains(results), [result.rate for result in results], marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="drains", ylabel="jobs per second")
    axes.set_title("Throughput")
    _save(figure, axes, "scaling-throughput.svg")


def _leases(studies: Series) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for name, results in studies.items():
        if name.startswith("no limit"):
            waits = [max(result.lease_wait(0.5), 1e-4) for result in results]
            axes.plot(_drains(results), waits, marker="o", label=name)
    axes.axhline(TIMEOUT, color="black", linestyle=":", label="end of a transaction")
    axes.set(xscale="log", yscale="log", xlabel="drains", ylabel="seconds")
    axes.set_title("How long a lease waits for the mutex (median)")
    _save(figure, axes, "scaling-leases.svg")


def _recovery(deaths: Mapping[str, Sequence[Recovery]]) -> None:
    figure, axes = plt.subplots(figsize=(7, 4.2))
    for name, found in deaths.items():
        minutes = [recovery.seconds_for(recovery.full_hands) / MINUTE for recovery in found]
        axes.plot([recovery.drains for recovery in found], minutes, marker="o", label=name)
    axes.set(xscale="log", yscale="log", xlabel="drains", ylabel="minutes")
    axes.set_title("From the death of a drain with full hands until its jobs are done")
    _save(figure, axes, "scaling-recovery.svg")


def _drains(results: Sequence[Result]) -> list[int]:
    return [result.scenario.drains for result in results]


def _save(figure: Figure, axes: Axes, name: str) -> None:
    ticks = [1, 2, 4, 8, 16, 32, 64, 125, 250, 500, 1000]
    low, high = axes.get_xlim()
    axes.set_xticks([tick for tick in ticks if low <= tick <= high])
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_major_formatter("{x:,g}")
    axes.yaxis.set_minor_formatter(NullFormatter())
    # Below the plot: inside it would lie on one of the lines.
    axes.legend(fontsize=7, loc="upper center", bbox_to_anchor=(0.5, -0.13), ncols=2)
    figure.savefig(FOLDER / name, metadata={"Date": None}, bbox_inches="tight")
    plt.close(figure)
