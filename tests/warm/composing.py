"""Hydra composes configurations faster: most of the time of a tiny command, otherwise."""

from __future__ import annotations

import copy
import inspect
import sys
import warnings
from types import FrameType, SimpleNamespace
from typing import Any

import yaml
from hydra._internal import utils
from hydra._internal.hydra import Hydra
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, QuotedString


def compose_faster() -> None:
    """Have Hydra do nothing in vain, or twice; what it composes is the same.

    Nothing changes the store of fairseq's options, which it copies, and which fairseq and we fill
    again and again.  No configuration sets the mode, for which it composes first.  YAML is read in
    C.  An override is parsed once: a command of fairseq has hundreds, nearly all with an option's
    default.  Who calls Hydra is found without a look at the source of every function on the stack.
    """
    store: Any = ConfigStore
    store.__deepcopy__ = lambda self, memo: self
    store.store = _unless_stored(store.store)
    Hydra.get_mode = lambda self, config_name, overrides: None  # type: ignore[method-assign]
    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # type: ignore[misc]
    OverridesParser.parse_rule = _once(OverridesParser.parse_rule)  # type: ignore[method-assign]
    utils.inspect = SimpleNamespace(**{**vars(inspect), "stack": _stack})  # type: ignore[attr-defined]


def _unless_stored(store: Any) -> Any:
    """The store's method that fills it, which leaves what is there already."""
    stored: dict[tuple[Any, ...], Any] = {}

    def store_unless_stored(self: ConfigStore, name: str, node: Any, *more: Any, **kw: Any) -> None:
        key = (name, *more, *kw.values())
        if stored.get(key, stored) is not node:  # which may be None
            store(self, name, node, *more, **kw)
            stored[key] = node

    return store_unless_stored


def _once(parse: Any) -> Any:
    """Hydra's method that parses a text, with a memory of overrides."""
    overrides: dict[str, Override] = {}

    def parse_rule(self: OverridesParser, s: str, rule_name: str) -> Any:
        if rule_name != "override":
            return parse(self, s, rule_name)
        if s not in overrides:
            overrides[s] = parse(self, s, rule_name)
        override = copy.copy(overrides[s])
        if not isinstance(override._value, str | int | float | QuotedString | None):
            override._value = copy.deepcopy(override._value)
        return override

    return parse_rule


def _stack() -> list[inspect.FrameInfo]:
    """``inspect.stack`` without sources."""
    frames: list[inspect.FrameInfo] = []
    frame: FrameType | None = sys._getframe(1)
    while frame:
        code = frame.f_code
        place = (frame, code.co_filename, frame.f_lineno, code.co_name)
        frames.append(inspect.FrameInfo(*place, None, None))
        frame = frame.f_back
    return frames


def compose_once() -> None:
    """Compose configurations of fairseq's commands: what Hydra loads and caches for them stays."""
    from fairseq import options
    from fairseq.dataclass.initialize import hydra_init
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    usual = ("--optimizer=adam", "--lr-scheduler=inverse_sqrt")
    commands = [
        (options.get_training_parser, ["--arch=transformer", *usual]),
        (options.get_training_parser, ["--arch=transformer_collab", *usual]),
        (options.get_generation_parser, []),
        (options.get_interactive_generation_parser, []),
        (options.get_validation_parser, []),
        (options.get_eval_lm_parser, []),
    ]
    hydra_init()
    with warnings.catch_warnings(action="ignore"):  # each command has its own
        for parser, words in commands:
            args = options.parse_args_and_arch(parser(), ["data", *words])
            convert_namespace_to_omegaconf(args)
