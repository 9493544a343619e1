"""`--user-dir NAME`: an installed package, wherever it is installed and wherever one stands."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import pytest
from fairseq import utils
from refusals import refusing


def import_plug_in(function) -> None:
    function(argparse.Namespace(user_dir="a_plug_in"))


def make_package(folder: Path) -> Path:
    package = folder / "a_plug_in"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    return package


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The folder of an importable package; the current folder is another one."""
    package = make_package(tmp_path / "site")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    yield package
    sys.modules.pop("a_plug_in", None)


def test_an_installed_package_is_found(installed: Path) -> None:
    with pytest.raises(FileNotFoundError):
        import_plug_in(utils.import_user_module.__wrapped__)
    import_plug_in(utils.import_user_module)
    assert sys.modules["a_plug_in"].__file__ == str(installed / "__init__.py")


def test_a_folder_comes_first(installed: Path, tmp_path: Path) -> None:
    here = make_package(tmp_path / "elsewhere")
    import_plug_in(utils.import_user_module)
    assert sys.modules["a_plug_in"].__file__ == str(here / "__init__.py")


def test_a_file_that_the_package_lacks(installed: Path) -> None:
    (installed / "__init__.py").write_text("open('no_file')")
    with pytest.raises(FileNotFoundError, match="no_file"):
        import_plug_in(utils.import_user_module)


def test_what_does_not_exist(installed: Path) -> None:
    for name in ("no_plug_in", "no/plug_in"):
        with refusing(f"--user-dir {name}"):
            utils.import_user_module(argparse.Namespace(user_dir=name))
