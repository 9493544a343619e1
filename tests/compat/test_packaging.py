"""The wheel, plain and editable: what it brings, and that uninstalling leaves nothing."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from interpreters import pip

pytestmark = pytest.mark.slow

HOOKED = "import sys; sys.exit('fairseq_compat' not in sys.modules)"


@pytest.fixture(scope="module")
def editable_wheel(tmp_path_factory, repository):
    """The wheel that `pip install --editable` makes and installs."""
    folder = tmp_path_factory.mktemp("editable")
    build = f"import hatchling.build; hatchling.build.build_editable({str(folder)!r})"
    subprocess.run([sys.executable, "-c", build], cwd=repository, check=True)
    return next(folder.glob("*.whl"))


@pytest.fixture
def environment(tmp_path):
    """An empty environment: pip works on it from outside."""
    folder = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    return folder


def files(folder):
    """List all files but the compiled ones, which pip and Python write as they please."""
    return {
        path.relative_to(folder)
        for path in folder.rglob("*")
        if path.is_file() and path.suffix != ".pyc"
    }


def is_hooked(environment):
    python = environment / "bin" / "python"
    return subprocess.run([python, "-I", "-c", HOOKED], check=False).returncode == 0


def test_the_wheel_holds_the_packages_and_the_hook(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names if ".dist-info" not in name}
    assert tops == {
        *("fairseq_collab", "fairseq_compat", "collab_common", "data_prep"),
        "fairseq_compat.pth",
    }
    assert not [name for name in names if "test" in name or name.endswith(".pyc")]
    assert "data_prep/embedded/lexicon/verbs.txt" in names


def test_the_wheel_asks_for_everything_but_fairseq(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    required = [
        line.split(": ")[1] for line in text.splitlines() if line.startswith("Requires-Dist")
    ]
    assert any(line.startswith("torch") for line in required)
    assert not any(line.startswith(("fairseq", "torchaudio")) for line in required)


@pytest.mark.parametrize("kind", ["wheel", "editable_wheel"])
def test_uninstalling_leaves_nothing(environment, request, kind):
    before = files(environment)
    target = ["--python", environment / "bin" / "python"]
    pip(*target, "install", "--no-deps", "--no-index", request.getfixturevalue(kind))
    installed = {path.name for path in files(environment) - before}
    assert {"fairseq_compat.pth", "fairseq-collab"} <= installed
    assert ("registry.py" in installed) is (kind == "wheel")
    assert is_hooked(environment)
    pip(*target, "uninstall", "--yes", "fairseq-collab")
    assert files(environment) == before
    assert not is_hooked(environment)


def test_the_hook_is_read_after_the_path_of_an_editable_install(editable_wheel):
    """Start-up reads .pth files in the order of their names."""
    names = [name for name in zipfile.ZipFile(editable_wheel).namelist() if name.endswith(".pth")]
    assert len(names) == 2
    assert max(names) == "fairseq_compat.pth"


def test_a_folder_of_its_own(python, tmp_path, wheel):
    """After `pip install --target` no .pth file is read: the first import installs the hook."""
    pip("install", "--no-deps", "--no-index", "--target", tmp_path / "lib", wheel)
    code = (
        "import fairseq_compat, sys;"
        "print(fairseq_compat.__file__, sys.meta_path[0] is fairseq_compat.Finder)"
    )
    out = python.output("-S", "-c", code, PYTHONPATH=str(tmp_path / "lib"))
    assert out == f"{Path(tmp_path, 'lib', 'fairseq_compat', '__init__.py')} True\n"
