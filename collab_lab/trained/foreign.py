"""What in a model may compute something that neither its options nor its weights show.

A model is built anew from its options and weights when it is cut or exported.  This is right only
if every part computes what fairseq, torch or this project wrote for it.  A plug-in of
``--user-dir`` may define a class of its own, replace a method of fairseq's class (or of one
module), or hook a module.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, MethodType
from typing import Any

from torch import nn

#: Packages whose modules compute what the names of their weights say.
KNOWN = {"torch", "fairseq", "fairseq_collab"}
#: Packages whose functions may be in a module of theirs: they correct or watch, or decorate.
HELPERS = {"fairseq_compat", "collab_lab", "typing_extensions", *sys.stdlib_module_names}
#: What PyTorch calls around ``forward``.
HOOKS = ("_forward_hooks", "_forward_pre_hooks")


def foreign_part(model: nn.Module) -> str | None:
    """The class of a part of a model that a plug-in defines, or None."""
    kinds = (type(part) for part in model.modules())
    return next((kind.__name__ for kind in kinds if _package(kind.__module__) not in KNOWN), None)


def foreign_function(model: nn.Module) -> str | None:
    """A function that a plug-in put into a known class, into one module or around it, or None."""
    classes = {kind for part in model.modules() for kind in type(part).__mro__}
    found = [
        f"{kind.__name__}.{name} of {module}"
        for kind in classes
        if _package(kind.__module__) in KNOWN
        for name, module in _foreign(vars(kind))
        # Other libraries add to torch.nn.Module what computes nothing.
        if name == "forward" or _package(kind.__module__) != "torch"
    ]
    for place, part in model.named_modules():
        if _package(type(part).__module__) not in KNOWN:
            continue
        of_hooks = {key: hook for hooks in HOOKS for key, hook in vars(part)[hooks].items()}
        for name, module in _foreign({**vars(part), **of_hooks}):
            what = "a hook" if isinstance(name, int) else name
            found.append(f"{place or type(model).__name__}: {what} of {module}")
    return min(found, default=None)


def _foreign(values: Any) -> Iterator[tuple[Any, str]]:
    """The functions among some values that neither known packages nor helpers define."""
    for name, value in values.items():
        if isinstance(value, (staticmethod, classmethod, MethodType)):
            value = value.__func__
        if isinstance(value, property):
            value = value.fget
        # Not by __module__, which functools.wraps copies.
        if isinstance(value, FunctionType):
            module = str(value.__globals__.get("__name__"))
            if _package(module) not in KNOWN | HELPERS:
                yield name, module


def _package(module: str) -> str:
    return module.partition(".")[0]
