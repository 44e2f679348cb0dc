"""A project folder of its own for a test, with the command line in it."""

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

from tests.support import forked

ROOT = Path(__file__).parents[2]
BIN = Path(sys.executable).parent


@dataclass(frozen=True)
class Project:
    """What a clone is to its user: the files, ``.env``, and data below ``.embed_pipeline``."""

    folder: Path
    environment: dict[str, str] = field(default_factory=dict)

    def command(self, *arguments: str) -> list[str]:
        return [str(BIN / "embed-pipeline"), *arguments]

    def variables(self, **environment: str) -> dict[str, str]:
        return {**os.environ, **self.environment, **environment}

    def run(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run ``embed-pipeline`` with these arguments."""
        variables = self.variables(**environment)
        return _in_one_line(forked.run(arguments, folder=self.folder, environment=variables))

    def run_program(self, *command: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run any program in the folder."""
        result = subprocess.run(
            command,
            cwd=self.folder,
            env=self.variables(**environment),
            capture_output=True,
            text=True,
            check=False,
        )
        return _in_one_line(result)


def _in_one_line(
    result: subprocess.CompletedProcess[str],
) -> subprocess.CompletedProcess[str]:
    """Its output with single spaces, however it was wrapped."""
    result.stdout = " ".join(result.stdout.split())
    result.stderr = " ".join(result.stderr.split())
    return result


def make_project(folder: Path) -> Project:
    for name in ("dagster.yaml", "pyproject.toml", "workspace.yaml"):
        shutil.copy(ROOT / name, folder / name)
    (folder / "embed_pipeline").symlink_to(ROOT / "embed_pipeline")
    # What the first hour chooses; here every test chooses for itself.
    example = (ROOT / ".env.example").read_text()
    (folder / ".env").write_text(example.replace("\nEMBEDDING_PROVIDER=", "\n#EMBEDDING_PROVIDER="))
    return Project(folder)
