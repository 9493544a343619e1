"""The two ways to change what is installed: in place, and as one other module should see it."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any


def wrap(owner: Any, name: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Decorates what is to be called in place of `owner.name`, with that as first argument.

    A method gets `self` after it. The original stays within reach, as `__wrapped__`.
    """

    def put(function: Callable[..., Any]) -> Callable[..., Any]:
        original = getattr(owner, name)

        @functools.wraps(original)
        def replacement(*args: Any, **kwargs: Any) -> Any:
            return function(original, *args, **kwargs)

        static = isinstance(vars(owner).get(name), staticmethod)
        setattr(owner, name, staticmethod(replacement) if static else replacement)
        return function

    return put


class Proxy(types.ModuleType):
    """A module with a few of its attributes replaced, to be put into another's globals."""

    def __init__(self, module: types.ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(replaced, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
