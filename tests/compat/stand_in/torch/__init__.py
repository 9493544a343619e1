"""A stand-in for torch, with which fairseq can be imported where there is no torch wheel.

Any name can be imported from it, subclassed, called and used as a decorator; nothing
computes. It shows that all of fairseq, and every fix, loads on an interpreter: no more.
"""

from __future__ import annotations

import abc
import importlib
import sys
import types
from importlib.machinery import ModuleSpec
from typing import Any, ClassVar


class AnyClass(abc.ABCMeta):
    """Classes with every attribute; a metaclass that goes together with abstract classes."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return any_class(name)

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        """Return a decorated function as it is, else an instance."""
        if cls.__module__ == __name__ and args and callable(args[0]):
            return args[0]
        return super().__call__(*args, **kwargs)


def any_class(name: str) -> type:
    """Make a class whose instances accept everything, too."""
    members = {
        "__module__": __name__,
        "__init__": lambda self, *args, **kwargs: None,
        "__call__": lambda self, function=None, *args, **kwargs: function,
    }
    return AnyClass(name, (), members)


class AnyModule(types.ModuleType):
    """A package with every attribute."""

    __path__: ClassVar[list[str]] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, any_class(name))
        return getattr(self, name)


class Finder:
    """Finds every module below torch."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(name, Finder, is_package=True) if name.startswith("torch.") else None  # type: ignore[arg-type]

    @staticmethod
    def create_module(spec: ModuleSpec) -> AnyModule:
        return AnyModule(spec.name)

    @staticmethod
    def exec_module(module: types.ModuleType) -> None:
        """Leave the module empty: its attributes appear when they are asked for."""


sys.meta_path.insert(0, Finder)  # type: ignore[arg-type]
sys.modules[__name__].__class__ = AnyModule

# What fairseq asks for while it is imported.
__version__ = "2.13.0"
cuda: Any = importlib.import_module("torch.cuda")
cuda.device_count = lambda: 0
cuda.is_available = lambda: False
hub: Any = importlib.import_module("torch.hub")
hub._get_torch_home = lambda: "/nonexistent"
