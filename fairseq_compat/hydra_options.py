"""A fix of model options in Hydra's configurations; its docstring names the fault."""

from __future__ import annotations

import argparse
from typing import Any

from collab_common.errors import UserError, did_you_mean

from .patching import wrap


def options_of(kind: str) -> set[str]:
    """Return the options of a model that fairseq registers without a dataclass, as `transformer`.

    Args:
        kind: name of the model or of one of its architectures.
    """
    from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY, MODEL_REGISTRY

    parser = argparse.ArgumentParser(add_help=False)
    (MODEL_REGISTRY.get(kind) or ARCH_MODEL_REGISTRY[kind]).add_args(parser)
    defaults = {action.dest: action.default for action in parser._actions}
    given = {name: value for name, value in defaults.items() if value is not None}
    options = argparse.Namespace(**given)
    if kind in ARCH_CONFIG_REGISTRY:
        ARCH_CONFIG_REGISTRY[kind](options)  # sets some that no command line has
    return {"_name", *defaults, *vars(options)}


def name_unknown_options() -> None:
    """fairseq-hydra-train ignores options that fairseq's own `transformer` does not have."""
    from fairseq.distributed import utils
    from fairseq.models import ARCH_MODEL_REGISTRY, MODEL_DATACLASS_REGISTRY
    from omegaconf import OmegaConf

    @wrap(utils, "call_main")
    def call_main(original: Any, cfg: Any, main: Any, **kwargs: Any) -> Any:
        model: Any = getattr(cfg, "model", None)
        kind: Any = model.get("_name") if OmegaConf.is_dict(model) else None  # of Hydra's command
        if kind in ARCH_MODEL_REGISTRY and kind not in MODEL_DATACLASS_REGISTRY:
            known = options_of(kind)
            for name in sorted({*map(str, model)} - known):
                problem = f"{kind} has no such option"
                raise UserError(problem, f"model.{name}", did_you_mean(name, known))
        return original(cfg, main, **kwargs)
