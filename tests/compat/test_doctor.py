"""`fairseq-collab doctor`, in sound and in broken environments."""

from __future__ import annotations

import sys

import pytest
from interpreters import empty_environment

from fairseq_compat import doctor

pytestmark = pytest.mark.slow


@pytest.fixture
def versions(monkeypatch):
    """Installed versions, as a dictionary that a test can change."""
    found = {name: doctor.installed_version(name) for name in doctor.DISTRIBUTIONS}
    monkeypatch.setattr(doctor, "installed_version", found.__getitem__)
    return found


def lines(problems):
    return [str(problem) for problem in problems]


def test_a_sound_environment(python, tmp_path):
    done = python.run("-m", "collab_common.main", "doctor", cwd=tmp_path)
    assert "No problem found." in done.stdout, done.stdout
    assert done.returncode == 0
    for name in ("python", "torch", "fairseq", "omegaconf", "devices", "search", "compiler"):
        assert f"\n{name} " in f"\n{done.stdout}"
    assert "active      encoder layers call their attention: In evaluation" in done.stdout
    assert "Traceback" not in done.stderr


def test_switched_off(python, tmp_path):
    done = python.run("-m", "collab_common.main", "doctor", cwd=tmp_path, FAIRSEQ_COMPAT_OFF="1")
    assert done.returncode == 1
    assert "WRONG FAIRSEQ_COMPAT_OFF=1 switches all fixes off (environment): run `unset" in (
        done.stdout
    )
    assert "not active  encoder layers" in done.stdout


def without_packages(folder, repository, command):
    """Run a command of the checkout in an environment that has nothing else."""
    python = empty_environment(folder)
    return python.run("-m", "collab_common.main", command, cwd=folder, PYTHONPATH=str(repository))


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
    assert (
        f"WRONG importing {package} fails with OSError: libcudart.so.99: not found" in done.stdout
    )
    assert f"({tmp_path / package})" in done.stdout


def test_python_out_of_range(monkeypatch):
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    assert "make the environment with Python 3.10 to 3.13" in lines(doctor.python_version())[0]


def test_missing_distribution(versions):
    versions["sacrebleu"] = ""
    assert lines(doctor.missing_distributions()) == [
        f"sacrebleu is not installed ({sys.prefix}): run `pip install sacrebleu`"
    ]


@pytest.mark.parametrize(
    ("name", "version", "told"),
    [
        ("fairseq", "0.12.3.1", "fairseq 0.12.3.1 instead of 0.12.2"),
        ("torch", "2.5.1+cu121", "torch 2.5.1+cu121 unpickles whatever a checkpoint holds"),
        ("omegaconf", "2.0.6", "hydra-core 1.3.2 does not work with omegaconf 2.0.6"),
    ],
)
def test_versions_out_of_range(versions, name, version, told):
    versions.update({"hydra-core": "1.3.2", "omegaconf": "2.3.0", name: version})
    (problem,) = doctor.versions_out_of_range()
    assert problem.what == told
    assert problem.remedy.startswith("run `pip install ")


@pytest.mark.parametrize(
    ("hydra", "omegaconf", "fits"),
    [
        ("1.0.7", "2.0.6", True),
        ("1.0.7", "2.3.0", False),
        ("1.1.2", "2.1.2", True),
        ("1.1.2", "2.0.6", False),
        ("1.3.2", "2.3.0", True),
        ("1.3.2", "2.1.2", False),
    ],
)
def test_hydra_and_omegaconf_in_step(hydra, omegaconf, fits):
    assert doctor.hydra_fits(hydra, omegaconf) is fits


def test_extension_modules_not_built(monkeypatch, tmp_path):
    monkeypatch.setattr(doctor, "folder_of", lambda package: tmp_path / package)
    problems = lines(doctor.missing_extensions())
    assert [line.split()[3] for line in problems] == list(doctor.EXTENSIONS)
    assert all("install a C++ compiler, then run `pip install" in line for line in problems)


def test_pth_file_that_cannot_be_followed(monkeypatch, tmp_path):
    """As after moving the checkout of an editable installation."""
    python = empty_environment(tmp_path / "env").executable
    (site,) = (tmp_path / "env").glob("lib/python*/site-packages")
    (site / "fairseq_compat.pth").write_text("import fairseq_compat\n")
    monkeypatch.setattr(sys, "executable", str(python))
    monkeypatch.setattr(doctor.sysconfig, "get_path", lambda name: str(site))
    (problem,) = doctor.hook()
    assert problem.where == f"{site / 'fairseq_compat.pth'} cannot import fairseq_compat"


def test_a_second_copy_of_the_plugin(monkeypatch, tmp_path):
    """The working folder holds another checkout than the one installed."""
    (tmp_path / "fairseq_collab").mkdir()
    (tmp_path / "fairseq_collab" / "__init__.py").touch()
    assert lines(doctor.copies("fairseq_collab")) == []
    monkeypatch.chdir(tmp_path)
    (problem,) = doctor.copies("fairseq_collab")
    assert problem.where == str(tmp_path / "fairseq_collab")
    assert problem.remedy.endswith(f"run `pip install -e {tmp_path}`")


@pytest.mark.parametrize(
    ("value", "says", "problems"),
    [
        ("", "exact, of models that have one (FAIRSEQ_COLLAB_SEARCH=fairseq: fairseq's own)", []),
        ("fairseq", "fairseq's, as FAIRSEQ_COLLAB_SEARCH=fairseq says", []),
        (
            "quick",
            "exact",
            [
                "FAIRSEQ_COLLAB_SEARCH is 'quick' (environment): set FAIRSEQ_COLLAB_SEARCH to "
                "exact or fairseq, or unset it"
            ],
        ),
    ],
)
def test_search(monkeypatch, value, says, problems):
    monkeypatch.setenv("FAIRSEQ_COLLAB_SEARCH", value)
    assert doctor.of_search().startswith(says)
    assert lines(doctor.search_variable()) == problems


def test_problems_take_one_line_each(capsys):
    doctor.print_problems([doctor.Problem("a", "b", "c"), doctor.Problem("d", "e", "f")])
    assert capsys.readouterr().out == "\n2 problems found:\n  WRONG a (b): c\n  WRONG d (e): f\n"
