"""As a user has it: the wheel of the sdist, installed, far from any checkout; uninstalling it.

The environment is new and holds the wheel alone. What the wheel needs is lent by the environment of
the tests, through a line in a .pth file: its packages can be imported, but its own .pth files, and
with them the checkout's editable install, are not read.
"""

from __future__ import annotations

import re
import sysconfig
import zipfile
from importlib.metadata import distribution
from pathlib import Path

import pytest
from cli.conftest import MODEL, OPTIMISER
from commands import REPOSITORY, warm, write_copy_task
from configs.test_configs import TINY, TWO_UPDATES
from interpreters import Interpreter, built, empty_environment, pip, python_of

pytestmark = pytest.mark.slow

PACKAGES = ("fairseq_collab", "collab_lab", "fairseq_compat", "collab_common", "data_prep")
SCRIPT = "#!{0}\nimport sys\nfrom {1} import {2}\nsys.exit({2}())\n"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that pip makes of the source distribution, without the checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    sdist = built("sdist", tmp_path_factory.mktemp("sdist"))
    pip("wheel", "--no-deps", "--no-build-isolation", "--no-index", "-w", folder, sdist)
    return next(folder.glob("*.whl"))


@pytest.fixture(scope="module")
def editable_wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel that `pip install --editable` makes and installs."""
    return built("editable", tmp_path_factory.mktemp("editable"))


def install(wheel: Path, python: Interpreter) -> None:
    pip("--python", python.executable, "install", "--no-deps", "--no-index", wheel)


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Interpreter:
    """An environment with the wheel, all that the wheel needs, and fairseq's commands."""
    python = empty_environment(tmp_path_factory.mktemp("installed") / "env")
    install(wheel, python)
    lent = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (site_packages(python) / "lent.pth").write_text("\n".join(lent))
    for entry in distribution("fairseq").entry_points:
        script = python.executable.with_name(entry.name)
        script.write_text(SCRIPT.format(python.executable, entry.module, entry.attr))
        script.chmod(0o755)
    return python


def site_packages(python: Interpreter) -> Path:
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    return Path(python.output("-c", code).strip())


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def files_below(folder: Path) -> set[str]:
    """All files but the compiled ones (written as Python pleases), from ``folder``'s parent."""
    return {
        path.relative_to(folder.parent).as_posix()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_has_every_file_of_the_packages(wheel: Path) -> None:
    """Style sheets, lexica and marks of typed packages; configurations inside ``collab_lab``."""
    expected = {f"collab_lab/{name}" for name in files_below(REPOSITORY / "configs")}
    for package in PACKAGES:
        expected |= files_below(REPOSITORY / package)
    names = {name for name in contents(wheel) if ".dist-info" not in name}
    assert names == expected | {"fairseq_compat.pth"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= names


def test_the_wheel_asks_for_everything_but_fairseq(wheel: Path) -> None:
    """Its version is the one to cite."""
    (metadata,) = (text for name, text in contents(wheel).items() if name.endswith("/METADATA"))
    cited = re.search(r"^version: .*$", (REPOSITORY / "CITATION.cff").read_text(), re.M)
    assert cited
    assert f"\n{cited[0].capitalize()}\n" in metadata.decode()
    required = re.findall(r"^Requires-Dist: (\w+)", metadata.decode(), re.M)
    assert "torch" in required
    assert not {"fairseq", "torchaudio"} & {*required}


@pytest.mark.parametrize("version", ["3.11", "3.13"])
def test_a_clean_environment(version: str, wheel: Path, tmp_path: Path) -> None:
    """The sdist's wheel of each Python: all modules compile; what needs no other package works."""
    python = empty_environment(tmp_path / "env", python_of(version))
    install(wheel, python)
    assert f"python{version}" in str(site_packages(python))
    python.output("-W", "error", "-m", "compileall", "-q", site_packages(python))
    said = python.output("--version", script="fairseq-collab", cwd=tmp_path)
    assert wheel.name.startswith(f"fairseq_collab-{said.split()[1]}-py3")
    for package in ("collab_common.folder", "collab_lab", "data_prep", "fairseq_compat"):
        python.output("-c", f"import {package}", cwd=tmp_path)


def is_hooked(python: Interpreter) -> bool:
    code = "import sys; sys.exit('fairseq_compat' not in sys.modules)"
    return python.run("-I", "-c", code).returncode == 0


@pytest.mark.parametrize("kind", ["wheel", "editable_wheel"])
def test_uninstalling_leaves_nothing(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    python, before = empty_environment(tmp_path / "env"), files_below(tmp_path / "env")
    install(request.getfixturevalue(kind), python)
    installed = {Path(name).name for name in files_below(tmp_path / "env") - before}
    assert {"fairseq_compat.pth", "fairseq-collab"} <= installed
    assert ("fix_table.py" in installed) is (kind == "wheel")
    assert is_hooked(python)
    pip("--python", python.executable, "uninstall", "--yes", "fairseq-collab")
    assert files_below(tmp_path / "env") == before
    assert not is_hooked(python)


def test_from_text_to_score(environment: Interpreter, tmp_path: Path) -> None:
    """Every command as in the README, in a folder of the user's own.

    All but the training and the doctor are forks of an interpreter of this environment.
    """
    forks = Interpreter(warm(environment.executable) / "python")

    def run(name: str, *arguments: object, python: Interpreter = forks) -> str:
        options = {"script": name, "cwd": tmp_path, "CUDA_VISIBLE_DEVICES": ""}
        return python.output(*arguments, **options)

    write_copy_task(tmp_path / "text", train=100)
    splits = [f"--{split}pref=text/{split}" for split in ("train", "valid", "test")]
    languages = ("--source-lang=en", "--target-lang=de", "--joined-dictionary")
    run("fairseq-preprocess", *languages, *splits, "--destdir=data")

    said = run("fairseq-collab", "doctor", python=environment)
    assert said.endswith("\nNo problem found.\n")
    configs = run("fairseq-collab", "configs").strip()
    assert Path(configs).parent == site_packages(environment) / "collab_lab"
    train = ("fairseq-train", "data", *MODEL, *OPTIMISER, "--max-tokens=200", "--save-dir=model")
    log = run(*train, "--user-dir=fairseq_collab", "--max-update=2", python=environment)
    assert "num_updates: 2 >= max_update: 2" in log

    generate = ("--path=model/checkpoint_last.pt", "--cpu", "--beam=2", "--max-len-b=10")
    translation = run("fairseq-generate", "data", "--user-dir=fairseq_collab", *generate)
    (tmp_path / "generation.txt").write_text(translation)
    score = run("fairseq-collab", "score", "generation.txt", "--reference", "text/test.de")
    assert "BLEU" in score

    settings = ("task.data=data", *TINY, *TWO_UPDATES, "hydra.run.dir=by-hydra")
    hydra = ("fairseq-hydra-train", "--config-dir", configs, "--config-name=experiment/multi30k")
    run(*hydra, *settings)
    assert (tmp_path / "by-hydra" / ".hydra" / "overrides.yaml").is_file()
