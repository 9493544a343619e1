"""Hydra without its repetitions: most of the time of a small command of fairseq is composing."""

from __future__ import annotations

import copy
import functools

from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser


@functools.cache
def compose_faster() -> None:
    """From now on, copy and read nothing twice.

    For every configuration Hydra copies its store of all of fairseq's options, out of which it
    copies again what it uses; and it reads three hundred options that have their defaults.
    """
    parse = OverridesParser.parse_rule
    known: dict[tuple[str, str], object] = {}

    def parse_once(self: OverridesParser, text: str, rule: str) -> object:
        if (text, rule) not in known:
            known[text, rule] = parse(self, text, rule)
        return copy.deepcopy(known[text, rule])

    ConfigStore.__deepcopy__ = lambda self, _: self
    OverridesParser.parse_rule = parse_once
