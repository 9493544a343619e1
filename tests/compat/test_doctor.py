"""`fairseq-collab doctor`, in sound and in broken environments."""

from __future__ import annotations

import sys

import pytest
from interpreters import empty_environment

from fairseq_compat import doctor

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("off", ["", "1"])
def test_a_sound_environment(python, repository, tmp_path, off):
    """It has a problem if the fixes are switched off, and none otherwise."""
    settings = {"FAIRSEQ_COMPAT_OFF": off, "PYTHONPATH": str(repository)}
    done = python.run("-m", "collab_lab.cli.main", "doctor", cwd=tmp_path, **settings)
    assert done.returncode == bool(off), done.stdout + done.stderr
    assert ("WRONG FAIRSEQ_COMPAT_OFF: " in done.stdout) == bool(off)
    assert f"{'not ' * bool(off)}active" in done.stdout


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("doctor", ("WRONG torch: import fails", "new interpreter does not load the fixes")),
        ("bench", ("fairseq is not installed",)),
    ],
)
def test_nothing_installed(tmp_path, repository, command, expected):
    """Nothing but this checkout on the path: no torch, no fairseq, no .pth file."""
    python = empty_environment(tmp_path / "env")
    command = ("-m", "collab_lab.cli.main", command)
    done = python.run(*command, cwd=tmp_path, PYTHONPATH=str(repository))
    assert done.returncode == 1
    for part in (*expected, "pip install --no-deps fairseq==0.12.2"):
        assert part in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.parametrize("module", doctor.MODULES)
def test_what_cannot_be_imported(monkeypatch, module):
    """The first is named, with what its import says."""
    monkeypatch.setitem(sys.modules, module, None)
    (problem,) = doctor.problems()
    assert (problem.where, module in problem.problem) == (module, True)


def test_another_version_of_fairseq(monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", lambda name: "0.12.3.1")
    (problem,) = doctor.problems()
    assert doctor.INSTALL in problem.todo
