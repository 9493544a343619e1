"""`--user-dir` by the name of an installed package."""

from __future__ import annotations

import argparse
import functools
import importlib.util
import os
from typing import Any


def accept_package_names() -> None:
    """Take `--user-dir fairseq_collab` from any folder.

    fairseq looks for it in the current folder, and beside itself in site-packages. An editable
    install is in neither, so that a configuration could only name the plug-in by a path.
    """
    from fairseq import utils

    original = utils.import_user_module

    @functools.wraps(original)
    def import_user_module(args: Any) -> None:
        folder = _package_folder(getattr(args, "user_dir", None))
        original(args if folder is None else argparse.Namespace(user_dir=folder))

    utils.import_user_module = import_user_module


def _package_folder(name: str | None) -> str | None:
    """Return the folder of the package `name`; None for a path, or where there is no such one."""
    if not name or not name.isidentifier() or os.path.exists(name):
        return None
    spec = importlib.util.find_spec(name)
    folders = spec.submodule_search_locations if spec is not None else None
    return os.path.abspath(next(iter(folders))) if folders else None
