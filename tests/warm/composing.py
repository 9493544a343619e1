"""Hydra without its repetitions: most of the time of a small command of fairseq is composing."""

from __future__ import annotations

import copy
import functools

import yaml
from hydra._internal.hydra import Hydra
from hydra.core.override_parser.overrides_parser import OverridesParser


@functools.cache
def compose_faster() -> None:
    """From now on, read nothing twice: of fairseq's options, three hundred have their defaults."""
    parse = OverridesParser.parse_rule
    known: dict[tuple[str, str], object] = {}

    def parse_once(self: OverridesParser, text: str, rule: str) -> object:
        if (text, rule) not in known:
            known[text, rule] = parse(self, text, rule)
        return copy.deepcopy(known[text, rule])

    OverridesParser.parse_rule = parse_once
    # Else all is composed once more, to look for a `hydra.mode`, which none of the tests gives.
    Hydra.get_mode = lambda *_, **__: None
    yaml.SafeLoader = yaml.CSafeLoader
