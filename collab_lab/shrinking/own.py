"""Loading cuts that a user wrote in a Python file; see docs/own_cuts.md."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from pathlib import Path

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
        raise UserError("file not found", path, f"give a Python file: {TODO}")
    name = f"own_cuts_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UserError("must be a Python file (.py)", path, TODO)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses look themselves up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # whatever the file does
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        raise UserError(problem, path, "correct the file") from error
    own = [one for one in vars(module).values() if isinstance(one, type) and one.__module__ == name]
    cuts = [kind for kind in own if issubclass(kind, Cut) and not kind.__name__.startswith("_")]
    if not cuts:
        raise UserError("defines no subclass of Cut", path, TODO)
    return tuple(made(kind, path) for kind in cuts)


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
