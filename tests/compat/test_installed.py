"""As a user has it: the wheel of the sdist, installed, far from any checkout.

The environment is new and holds the wheel alone. What the wheel needs is lent by the environment of
the tests, through a line in a .pth file: its packages can be imported, but its own .pth files, and
with them the checkout's editable install, are not read.
"""

from __future__ import annotations

import subprocess
import sysconfig
import tarfile
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from cli.conftest import MODEL, OPTIMISER
from commands import write_copy_task
from configs.hydra_runs import TINY, TWO_UPDATES
from interpreters import Interpreter, built, empty_environment, pip, succeeded

pytestmark = pytest.mark.slow

PACKAGES = ("fairseq_collab", "fairseq_compat", "collab_common", "data_prep")
FOLDERS = {*PACKAGES, "configs", "recipes", "results", "tests"}
FILES = {
    *("fairseq_compat.pth", "pyproject.toml", "constraints.txt"),
    *("README.md", "CHANGELOG.md", "CITATION.cff", "LICENSE"),
}
WHERE = "import importlib.util as u, sys; [print(u.find_spec(m).origin) for m in sys.argv[1:]]"
SCRIPT = "#!{0}\nimport sys\nfrom {1} import {2}\nsys.exit({2}())\n"
ON_THE_CPU = {"CUDA_VISIBLE_DEVICES": ""}


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory, repository: Path) -> Path:
    """The source distribution of this checkout."""
    return built("sdist", tmp_path_factory.mktemp("sdist"), repository)


@pytest.fixture(scope="module")
def wheel_of_sdist(tmp_path_factory: pytest.TempPathFactory, sdist: Path) -> Path:
    """The wheel that pip makes of the source distribution, without the checkout."""
    folder = tmp_path_factory.mktemp("wheel-of-sdist")
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, sdist)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory, wheel_of_sdist: Path) -> Interpreter:
    """An environment with the wheel and nothing else."""
    python = empty_environment(tmp_path_factory.mktemp("installed") / "env")
    pip("--python", python.executable, "install", "--no-deps", "--no-index", wheel_of_sdist)
    return python


@pytest.fixture(scope="module")
def environment(alone: Interpreter) -> Interpreter:
    """The same with all that the wheel needs, and fairseq's commands."""
    packages = site_packages(alone)
    lent = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "lent.pth").write_text("\n".join(lent))
    for entry in distribution("fairseq").entry_points:
        script = alone.executable.with_name(entry.name)
        script.write_text(SCRIPT.format(alone.executable, entry.module, entry.attr))
        script.chmod(0o755)
    return alone


def site_packages(python: Interpreter) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(python.output("-c", code).strip())


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files_below(folder: Path) -> set[str]:
    """All files but the compiled ones, as paths from ``folder``'s parent."""
    return {
        path.relative_to(folder.parent).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_sdist_holds_the_sources_and_nothing_that_lies_about(
    sdist: Path, repository: Path
) -> None:
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive if member.isfile()}
    assert {name.partition("/")[0] for name in names} == FOLDERS | FILES | {
        "PKG-INFO",
        ".gitignore",
    }
    git = ("git", "ls-files", "--cached", "--others", "--exclude-standard", *FOLDERS)
    listed = subprocess.run(git, cwd=repository, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("no git here, which knows what belongs to the project")
    tracked = {name for name in listed.stdout.splitlines() if (repository / name).is_file()}
    assert {name for name in names if "/" in name} == tracked


def test_the_wheel_of_the_sdist_is_that_of_the_checkout(wheel_of_sdist: Path, wheel: Path) -> None:
    ours, theirs = contents(wheel_of_sdist), contents(wheel)
    assert ours.keys() == theirs.keys()
    assert [name for name in ours if ours[name] != theirs[name]] == []


def test_the_wheel_has_every_file_of_the_packages(wheel_of_sdist: Path, repository: Path) -> None:
    """Style sheets, lexica and marks of typed packages, too; configurations inside the plug-in."""
    expected = {f"fairseq_collab/{name}" for name in files_below(repository / "configs")}
    for package in PACKAGES:
        expected |= files_below(repository / package)
    names = {name for name in contents(wheel_of_sdist) if ".dist-info" not in name}
    assert names == expected | {"fairseq_compat.pth"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_folders_are_told_where_nothing_can_be_imported(alone: Interpreter) -> None:
    package = site_packages(alone) / "fairseq_collab"
    for name, folder in (("user-dir", package), ("configs", package / "configs")):
        done = succeeded(alone.run_script("fairseq-collab", name))
        assert (done.stdout, done.stderr) == (f"{folder}\n", "")
        assert folder.is_dir()
        assert alone.run_script("fairseq-collab", name, "--path").returncode == 2


def test_folders_of_a_checkout(python: Interpreter, repository: Path) -> None:
    for name, folder in (("user-dir", "fairseq_collab"), ("configs", "configs")):
        out = python.output("-m", "collab_common.main", name, cwd=repository)
        assert out == f"{repository / folder}\n"


def test_nothing_of_the_checkout_is_in_reach(environment: Interpreter) -> None:
    found = environment.output("-c", WHERE, *PACKAGES).splitlines()
    packages = site_packages(environment)
    assert len(found) == len(PACKAGES)
    assert all(Path(path).is_relative_to(packages) for path in found)


def test_the_doctor_finds_no_problem(environment: Interpreter) -> None:
    done = succeeded(environment.run_script("fairseq-collab", "doctor", **ON_THE_CPU))
    assert done.stdout.endswith("\nNo problem found.\n")
    assert str(environment.executable) in done.stdout


def test_from_text_to_score(environment: Interpreter, tmp_path: Path) -> None:
    """Every command as in the README, in a folder of the user's own."""

    def run(*command: object) -> str:
        name, *arguments = map(str, command)
        return succeeded(
            environment.run_script(name, *arguments, cwd=tmp_path, **ON_THE_CPU)
        ).stdout

    write_copy_task(tmp_path / "text", train=100)
    splits = [f"--{split}pref=text/{split}" for split in ("train", "valid", "test")]
    languages = ("--source-lang=en", "--target-lang=de", "--joined-dictionary")
    run("fairseq-preprocess", *languages, *splits, "--destdir=data")

    user_dir, configs = (run("fairseq-collab", name).strip() for name in ("user-dir", "configs"))
    train = ("fairseq-train", "data", *MODEL, *OPTIMISER, "--max-tokens=200", "--save-dir=model")
    log = run(*train, "--user-dir", user_dir, "--max-update=2")
    assert "num_updates: 2 >= max_update: 2" in log

    generate = ("--path=model/checkpoint_last.pt", "--cpu", "--beam=2", "--max-len-b=10")
    translation = run("fairseq-generate", "data", "--user-dir=fairseq_collab", *generate)
    (tmp_path / "generation.txt").write_text(translation)
    score = run("fairseq-collab", "score", "generation.txt", "--reference", "text/test.de")
    assert "BLEU" in score

    settings = ("task.data=data", *TINY, *TWO_UPDATES, "hydra.run.dir=by-hydra")
    hydra = ("fairseq-hydra-train", "--config-dir", configs, "--config-name=multi30k")
    run(*hydra, *settings)
    assert (tmp_path / "by-hydra" / ".hydra" / "overrides.yaml").is_file()
