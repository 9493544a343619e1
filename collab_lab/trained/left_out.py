"""What a training had that reading its checkpoint leaves out: moving averages and a plug-in."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch import Tensor

from collab_common.progress import say
from fairseq_compat import checkpoints


def moving_averages(state: Mapping[str, Any]) -> Mapping[str, Tensor] | None:
    """The moving averages of the weights that ``--store-ema`` saved; None if there are none.

    With ``--ema-fp32``, a training in half precision also saves them in single precision.  Those
    are not tied any more, so that each name takes the first of the averages that are.
    """
    extra = state.get("extra_state") or {}
    averages: Mapping[str, Tensor] | None = extra.get("ema")
    if averages is None:
        return None
    exact, names = extra.get("ema_fp32_params") or {}, checkpoints.first_names(averages)
    return {name: exact.get(names[name], average) for name, average in averages.items()}


def say_if_left_out(state: Mapping[str, Any], path: str | Path) -> bool:
    """Say that moving averages in a checkpoint are not what is read; return whether it has any."""
    has_averages = moving_averages(state) is not None
    if has_averages:
        say(
            f"warning: {path} holds moving averages (--store-ema), which are left out; to use them "
            "instead of the weights, run `fairseq-collab average --ema` on what the training saved"
        )
    return has_averages


def plug_in_folder(state: Mapping[str, Any]) -> Path | None:
    """The folder of the plug-in of a training, where it is loaded from; None if it is not loaded.

    Without a plug-in it is the one of this project.
    """
    user_dir = Path(getattr(state["cfg"].common, "user_dir", None) or "fairseq_collab").absolute()
    file = getattr(sys.modules.get(user_dir.name), "__file__", None)
    folder = file and Path(file).parent
    return folder if folder and folder.name == user_dir.name else None


def say_if_not_loaded(state: Mapping[str, Any], path: str | Path) -> None:
    """Say that the plug-in of a training is not loaded, whatever it changes in fairseq."""
    if plug_in_folder(state) is None:
        user_dir = state["cfg"].common.user_dir
        say(
            f"warning: {path} was trained with the plug-in {user_dir}, which is not loaded: what "
            "it changes in fairseq is left out; give its folder (--user-dir)"
        )
