"""`fairseq-collab doctor`, in sound and in broken environments."""

from __future__ import annotations

import sys

import pytest
from interpreters import empty_environment

from fairseq_compat import doctor

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("off", ["", "1"])
def test_a_whole_environment(python, tmp_path, off):
    """There is one problem if the fixes are switched off, and none otherwise."""
    done = python.run("-m", "collab_lab.cli.main", "doctor", cwd=tmp_path, FAIRSEQ_COMPAT_OFF=off)
    assert done.returncode == bool(off), done.stdout + done.stderr
    assert ("WRONG FAIRSEQ_COMPAT_OFF=1 switches all fixes off" in done.stdout) == bool(off)
    assert f"{'not ' * bool(off)}active" in done.stdout


def without_packages(folder, repository, command):
    """Run a command of the checkout in an environment that has nothing else."""
    python = empty_environment(folder)
    return python.run("-m", "collab_lab.cli.main", command, cwd=folder, PYTHONPATH=str(repository))


def test_nothing_installed(tmp_path, repository):
    """Nothing but the two packages on the path: no torch, no fairseq, no .pth file."""
    done = without_packages(tmp_path / "env", repository, "doctor")
    assert done.returncode == 1, done.stderr
    assert "torch          not installed" in done.stdout
    for name, command in {
        "torch": "pip install torch",
        "fairseq": "pip install --no-deps fairseq==0.12.2",
        "hydra-core": "pip install hydra-core",
    }.items():
        assert f"WRONG {name} is not installed ({tmp_path}/env): run `{command}`" in done.stdout
    assert "fairseq_compat.pth is missing" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_other_commands_without_fairseq(tmp_path, repository):
    done = without_packages(tmp_path / "env", repository, "bench")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "pip install --no-deps fairseq==0.12.2" in done.stderr


@pytest.mark.parametrize("package", ["torch", "fairseq"])
def test_a_package_that_raises_on_import(python, tmp_path, package):
    (tmp_path / package).mkdir()
    (tmp_path / package / "__init__.py").write_text("raise OSError('libcudart.so.99: not found')")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r});"
        "from fairseq_compat import doctor; sys.exit(doctor.main([]))"
    )
    done = python.run("-c", code, cwd=tmp_path)
    assert done.returncode == 1
    assert f"WRONG importing {package} fails with OSError: libcudart.so.99: not f" in done.stdout
    assert f"({tmp_path / package})" in done.stdout


@pytest.mark.parametrize(
    ("name", "version", "expected"),
    [
        ("sacrebleu", "", "sacrebleu is not installed"),
        ("fairseq", "0.12.3.1", "fairseq 0.12.3.1 instead of 0.12.2"),
        ("torch", "2.5.1+cu121", "torch 2.5.1+cu121 instead of 2.6 or later"),
        ("omegaconf", "2.0.6", "omegaconf 2.0.6 instead of 2.3 or later"),
    ],
)
def test_wrong_distributions(monkeypatch, name, version, expected):
    found = {name: doctor.installed_version(name) for name in doctor.DISTRIBUTIONS}
    monkeypatch.setattr(doctor, "installed_version", (found | {name: version}).__getitem__)
    (problem,) = doctor.distributions()
    assert problem.message == expected
    assert problem.remedy.startswith("run `pip install ")


def test_extension_modules_not_built(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "folder_of", lambda package: tmp_path / package)
    assert len([*doctor.missing_extensions()]) == len(doctor.EXTENSIONS)


def test_pth_file_that_cannot_be_followed(monkeypatch, tmp_path):
    """As after moving the checkout of an editable installation."""
    python = empty_environment(tmp_path / "env").executable
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "fairseq_compat.pth").write_text("import fairseq_compat\n")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: str(site))
    (problem,) = doctor.hook()
    assert problem.where == f"{site / 'fairseq_compat.pth'} cannot import fairseq_compat"
