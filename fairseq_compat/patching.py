"""Two ways to patch a library: for everyone, or only as one other module sees it."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorate the replacement of ``owner.name``, which gets the original as its first argument.

    A replaced method then gets ``self``; the original of a class method is already bound to its
    class. The original is kept as ``__wrapped__``.
    """

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        static = isinstance(vars(owner).get(name), staticmethod | classmethod)
        setattr(owner, name, staticmethod(replacement) if static else replacement)
        return function

    return put


class Proxy(types.ModuleType):
    """A module with some attributes replaced, to be put into the globals of another module."""

    def __init__(self, module: types.ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(replaced, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
