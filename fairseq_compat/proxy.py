"""A module as one other module should see it."""

import types
from typing import Any


class Proxy(types.ModuleType):
    """A module with a few of its attributes replaced, to be put into another's globals."""

    def __init__(self, module: types.ModuleType, **replaced: Any) -> None:
        super().__init__(module.__name__)
        self.__dict__.update(replaced, _module=module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)
