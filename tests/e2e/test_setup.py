"""Making the environment: what goes wrong is said, and leaves nothing half-made."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from embed_pipeline.devserver.ports import free_port
from tests.support.project import ROOT


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """The files that the set-up reads."""
    shutil.copytree(ROOT / "scripts", tmp_path / "scripts")
    for name in (".env.example", "pyproject.toml", "requirements.lock"):
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


@pytest.fixture
def setup_module(checkout: Path) -> ModuleType:
    """The script as a module, so that a full disk need not be a real one."""
    spec = importlib.util.spec_from_file_location("setup_script", checkout / "scripts" / "setup.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_setup(checkout: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["sh", "scripts/setup.sh"],
        cwd=checkout,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def test_an_unsuitable_python_is_named(checkout: Path) -> None:
    old = checkout / "old-python"
    old.write_text("#!/bin/sh\n[ \"$1\" = --version ] && echo 'Python 3.9.1'\nexit 1\n")
    old.chmod(0o755)

    result = run_setup(checkout, PYTHON=str(old))

    assert result.returncode == 2
    assert "needs Python 3.11, 3.12, 3.13 or 3.14" in result.stderr
    assert "Python 3.9.1" in result.stderr
    assert not (checkout / ".venv").exists()


def test_no_network_is_said_and_leaves_nothing(checkout: Path) -> None:
    result = run_setup(checkout, PIP_INDEX_URL=f"http://127.0.0.1:{free_port()}/", PIP_RETRIES="0")

    assert result.returncode == 2
    assert "The packages could not be installed" in result.stderr
    assert "Without a network" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (checkout / ".venv").exists()


def test_a_package_with_another_hash_is_refused_and_leaves_nothing(checkout: Path) -> None:
    lock = checkout / "requirements.lock"
    head, tail = lock.read_text().split("\nuv==")
    lock.write_text(head + "\nuv==" + re.sub(r"sha256:[0-9a-f]{64}", "sha256:" + "0" * 64, tail))

    result = run_setup(checkout)

    assert result.returncode == 2
    assert "DO NOT MATCH THE HASHES" in result.stderr
    assert not (checkout / ".venv").exists()


def test_a_full_disk_is_said_before_anything_is_made(
    setup_module: ModuleType,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    full = shutil._ntuple_diskusage(10**9, 10**9, 0)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)

    with pytest.raises(SystemExit) as caught:
        setup_module.main()

    assert caught.value.code == 2
    assert "0.0 GB are free" in capsys.readouterr().err
    assert not (checkout / ".venv").exists()


def test_a_python_without_ensurepip_is_told_what_to_install(
    setup_module: ModuleType,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def fail(folder: Path, **_: object) -> NoReturn:
        folder.mkdir()
        raise subprocess.CalledProcessError(1, "ensurepip")

    monkeypatch.setattr(setup_module.venv, "create", fail)

    with pytest.raises(SystemExit):
        setup_module.main()

    assert "apt install python3-venv" in capsys.readouterr().err
    assert not (checkout / ".venv").exists()


def test_ctrl_c_leaves_nothing(
    setup_module: ModuleType, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt() -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(setup_module, "make_venv", (checkout / ".venv").mkdir)
    monkeypatch.setattr(setup_module, "install_packages", interrupt)

    with pytest.raises(KeyboardInterrupt):
        setup_module.main()

    assert not (checkout / ".venv").exists()


def test_a_set_up_that_works_prints_one_line(
    setup_module: ModuleType,
    checkout: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    installed = checkout / "installed"
    uv = checkout / ".venv/bin/uv"

    def make_venv() -> None:
        uv.parent.mkdir(parents=True)
        # Lists all packages, unless it is told to be quiet.
        uv.write_text(
            '#!/bin/sh\necho "$@" >> installed\ncase "$*" in *--quiet*) ;; *) seq 281;; esac\n'
        )
        uv.chmod(0o755)

    monkeypatch.setattr(setup_module, "make_venv", make_venv)
    monkeypatch.chdir(checkout)

    setup_module.main()

    [line] = capfd.readouterr().out.splitlines()
    assert line.endswith("ready: .venv/bin/embed-pipeline --help")
    assert len(installed.read_text().splitlines()) == 2
    assert (checkout / ".venv/.ready").exists()


def test_settings_that_exist_are_not_overwritten(setup_module: ModuleType, checkout: Path) -> None:
    (checkout / ".env").write_text("mine")

    setup_module.copy_env_file()

    assert (checkout / ".env").read_text() == "mine"


def test_new_settings_are_for_the_user_only(setup_module: ModuleType, checkout: Path) -> None:
    setup_module.copy_env_file()

    settings, example = (checkout / ".env").read_text(), (ROOT / ".env.example").read_text()
    pairs = zip(example.splitlines(), settings.splitlines(), strict=True)
    [(was, became)] = [(line, own) for line, own in pairs if line != own]
    assert was == "#EMBED_HISTORY_FROM=2026-01-01"
    assert re.fullmatch(r"EMBED_HISTORY_FROM=\$\{EMBED_HISTORY_FROM:-\d{4}-\d\d-\d\d\}", became)
    assert (checkout / ".env").stat().st_mode & 0o077 == 0
