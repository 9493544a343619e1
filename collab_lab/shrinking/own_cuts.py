"""Loading cuts that a user wrote in a Python file; see docs/own_cuts.md."""

from __future__ import annotations

import importlib.util
import inspect
import os
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType

from fairseq.models import MODEL_REGISTRY
from fairseq.utils import import_user_module

from collab_common.errors import UserError
from collab_lab.shrinking.cut import Cut
from collab_lab.shrinking.shape import PARTS

TODO = "see docs/own_cuts.md"


def cuts_in(path: Path) -> tuple[Cut, ...]:
    """Create one instance of every cut that a file defines.

    Raises:
        UserError: the file does not exist or cannot be imported, or a cut in it lacks a name, a
            part or a method.
    """
    if not path.is_file():
        raise UserError("file not found", path, f"give a file of Python: {TODO}")
    try:
        module = plug_in(path.parent) if path.name == "__init__.py" else imported(path)
    except Exception as error:  # whatever the file does
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        raise UserError(problem, path, "mend the file") from error
    name = module.__name__
    if path.name != "__init__.py" and any(k.__module__ == name for k in MODEL_REGISTRY.values()):
        problem = "registers heads, which fairseq finds only in a folder (--user-dir)"
        todo = "make it the file __init__.py of a folder, and give --with FOLDER/__init__.py"
        raise UserError(problem, path, todo)
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == name]
    cuts = [kind for kind in own if issubclass(kind, Cut) and not kind.__name__.startswith("_")]
    if not cuts:
        raise UserError("defines no subclass of Cut", path, TODO)
    return tuple(made(kind, path) for kind in cuts)


def imported(path: Path) -> ModuleType:
    """A file of Python, run again each time."""
    name = f"own_cuts_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError("must be a Python file (.py)", path, TODO)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    spec.loader.exec_module(module)
    return module


def plug_in(folder: Path) -> ModuleType:
    """The plug-in of a folder, imported once: heads cannot be registered twice."""
    absolute = os.path.abspath(folder)  # as fairseq does
    import_user_module(Namespace(user_dir=absolute))
    return sys.modules[os.path.basename(absolute)]


def made(kind: type[Cut], path: Path) -> Cut:
    """Create a cut of one class; UserError if the class lacks a name, a part or a method."""
    lacks = [name for name in ("name", "part") if not isinstance(getattr(kind, name, None), str)]
    if inspect.isabstract(kind):
        lacks += sorted(kind.__abstractmethods__)
    if lacks:
        raise UserError(f"{kind.__name__} does not define {', '.join(lacks)}", path, TODO)
    if kind.part not in PARTS:
        problem = f"{kind.__name__}: part must be one of {', '.join(PARTS)}, not {kind.part!r}"
        raise UserError(problem, path, TODO)
    return kind()
