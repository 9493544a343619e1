"""The import hook, ``fairseq-collab doctor`` and recipes/setup.sh, in new interpreters."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

import pytest
from commands import REPOSITORY
from interpreters import PYTHON, empty_environment

import fairseq_compat
from fairseq_compat import doctor

IS_HOOKED = "import sys; print('Finder' in [getattr(f, '__name__', '') for f in sys.meta_path])"


def modules_loaded_by(*arguments):
    """Return the modules that `python -X importtime ARGUMENTS` imports."""
    done = PYTHON.run("-X", "importtime", *arguments)
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"\|\s+([\w.]+)$", done.stderr, re.MULTILINE))


def test_start_up_imports_nothing_but_the_hook():
    """What costs time at start-up is importing: there is one small module to import."""
    # -S leaves out site, and with it every .pth file; importing site brings the rest back.
    # Not isolated, as below: PYTHONWARNINGS, if it is set, loads a module.
    bare = modules_loaded_by("-S", "-c", "import os")
    ours = {name for name in modules_loaded_by("-I", "-c", "pass") if "fairseq" in name}
    alone = modules_loaded_by(
        "-S",
        "-c",
        f"import os, sys; sys.path.append({str(Path(fairseq_compat.__file__).parents[1])!r});"
        "import fairseq_compat",
    )
    assert ours == {"fairseq_compat"}
    assert alone - bare == {"fairseq_compat"}


@pytest.mark.parametrize(("off", "hooked"), [("", True), ("1", False)])
def test_every_interpreter_is_hooked_unless_the_environment_switches_it_off(off, hooked):
    assert PYTHON.output("-c", IS_HOOKED, FAIRSEQ_COMPAT_OFF=off) == f"{hooked}\n"


def test_a_fairseq_imported_earlier_is_mended_at_once(tmp_path: Path) -> None:
    (tmp_path / "fairseq.py").touch()
    code = (
        f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(REPOSITORY)!r}]\n"
        "import fairseq, fairseq_compat\n"
        "from fairseq_compat import fix_table\n"
        "fix_table.apply_fixes = lambda moment: print(moment, end=' ')\n"
        "fairseq_compat.install()"
    )
    assert PYTHON.output("-c", code, FAIRSEQ_COMPAT_OFF="1") == "start before fairseq "


# ---- doctor --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("off", ["", "1"])
def test_a_sound_environment(tmp_path, off):
    """It has a problem if the fixes are switched off, and none otherwise."""
    settings = {"FAIRSEQ_COMPAT_OFF": off, "PYTHONPATH": str(REPOSITORY)}
    done = PYTHON.run("-m", "collab_lab.cli.main", "doctor", cwd=tmp_path, **settings)
    assert done.returncode == bool(off), done.stdout + done.stderr
    assert ("WRONG FAIRSEQ_COMPAT_OFF: " in done.stdout) == bool(off)
    assert f"{'not ' * bool(off)}active" in done.stdout


@pytest.mark.slow
def test_nothing_installed(tmp_path):
    """Nothing but this checkout on the path: no torch, no fairseq, no .pth file."""
    python = empty_environment(tmp_path / "env")
    for command, expected in (
        ("doctor", ("WRONG torch: import fails", "new interpreter does not load the fixes")),
        ("bench", ("fairseq is not installed",)),
    ):
        words = ("-m", "collab_lab.cli.main", command)
        done = python.run(*words, cwd=tmp_path, PYTHONPATH=str(REPOSITORY))
        assert done.returncode == 1
        for part in (*expected, "pip install --no-deps fairseq==0.12.2"):
            assert part in done.stdout + done.stderr
        assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("module", ["torch", "fairseq.libbleu"])
def test_what_cannot_be_imported(monkeypatch, module):
    """The first is named, with what its import says."""
    monkeypatch.setitem(sys.modules, module, None)
    (problem,) = doctor.problems()
    assert (problem.where, module in problem.problem) == (module, True)


@pytest.mark.slow
def test_another_version_of_fairseq(monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", lambda name: "0.12.3.1")
    (problem,) = doctor.problems()
    assert doctor.INSTALL in problem.todo


# ---- recipes/setup.sh ----------------------------------------------------------------------------


def setup(folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the script on FOLDER/env, with a Python that makes no environment."""
    python = folder / "python"
    python.write_text(f'#!/bin/sh\n[ "$2" = venv ] || exec {sys.executable} "$@"\nexit 1\n')
    python.chmod(0o755)
    variables = {**os.environ, "VENV": str(folder / "env"), "PYTHON": str(python), **environment}
    command = ["bash", REPOSITORY / "recipes" / "setup.sh"]
    return subprocess.run(command, env=variables, capture_output=True, text=True)


def make(folder: Path, *names: str) -> None:
    folder.mkdir()
    for name in names:
        (folder / name).touch()


def test_a_finished_set_up_is_skipped(tmp_path: Path) -> None:
    names = "constraints.txt", "pyproject.toml", "CITATION.cff"
    text = b"".join((REPOSITORY / name).read_bytes() for name in names)
    make(tmp_path / "env")
    stamp = f"{hashlib.sha256(text).hexdigest()} {platform.python_version()}\n"
    (tmp_path / "env" / "setup-complete").write_text(stamp)
    assert setup(tmp_path).stdout.endswith("env is up to date\n")


def test_an_interrupted_set_up_starts_over(tmp_path: Path) -> None:
    make(tmp_path / "env", "setup-unfinished", "leftover")
    assert "interrupted" in setup(tmp_path).stdout
    assert [path.name for path in (tmp_path / "env").iterdir()] == ["setup-unfinished"]


def test_a_folder_that_is_no_environment_of_this_python_is_left_alone(tmp_path: Path) -> None:
    make(tmp_path / "env", "thesis.txt")
    for _ in range(2):
        done = setup(tmp_path)
        assert (done.returncode, done.stderr.count("\n")) == (1, 1)
        assert str(tmp_path / "env") in done.stderr
    assert [path.name for path in (tmp_path / "env").iterdir()] == ["thesis.txt"]


@pytest.mark.parametrize(
    ("environment", "told"),
    [
        ({"PYTHON": "no-such-python"}, "no-such-python"),
        ({"CXX": "no-such-compiler"}, "no C++ compiler (no-such-compiler)"),
    ],
)
def test_one_line_says_what_is_missing(environment, told, tmp_path):
    done = setup(tmp_path, **environment)
    assert (done.returncode, done.stderr.count("\n")) == (1, 1)
    assert done.stderr.startswith(f"setup: {told}")
