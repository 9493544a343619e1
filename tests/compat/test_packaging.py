"""The wheel, plain and editable: what it brings, and that uninstalling leaves nothing."""

from __future__ import annotations

import subprocess
import zipfile

import pytest
from interpreters import built, empty_environment, pip

pytestmark = pytest.mark.slow

HOOKED = "import sys; sys.exit('fairseq_compat' not in sys.modules)"


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


def test_the_wheel_asks_for_everything_but_fairseq(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        text = archive.read(metadata).decode()
    required = [
        line.split(": ")[1] for line in text.splitlines() if line.startswith("Requires-Dist")
    ]
    assert any(line.startswith("torch") for line in required)
    assert not any(line.startswith(("fairseq", "torchaudio")) for line in required)


@pytest.fixture(scope="module")
def editable_wheel(tmp_path_factory, repository):
    """The wheel that `pip install --editable` makes and installs."""
    return built("editable", tmp_path_factory.mktemp("editable"), repository)


@pytest.mark.parametrize("kind", ["wheel", "editable_wheel"])
def test_uninstalling_leaves_nothing(tmp_path, request, kind):
    environment = tmp_path / "env"
    target = ["--python", empty_environment(environment).executable]
    before = files(environment)
    pip(*target, "install", "--no-deps", "--no-index", request.getfixturevalue(kind))
    installed = {path.name for path in files(environment) - before}
    assert {"fairseq_compat.pth", "fairseq-collab"} <= installed
    assert ("registry.py" in installed) is (kind == "wheel")
    assert is_hooked(environment)
    pip(*target, "uninstall", "--yes", "fairseq-collab")
    assert files(environment) == before
    assert not is_hooked(environment)
