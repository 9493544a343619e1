"""Hydra composes configurations faster: half of the time of a tiny training, otherwise."""

from __future__ import annotations

from typing import Any

import yaml
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore


def compose_faster() -> None:
    """Have Hydra neither copy the store of fairseq's options, nor compose twice for its mode.

    Nothing changes the store, and no configuration sets the mode.  YAML is read in C.
    """
    store: Any = ConfigStore
    store.__deepcopy__ = lambda self, memo: self
    Hydra.get_mode = lambda self, config_name, overrides: None  # type: ignore[method-assign]
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # type: ignore[misc]
