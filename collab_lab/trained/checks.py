"""Checks of a checkpoint, its task and its data folder before anything is computed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from fairseq import utils
from fairseq.models import FairseqLanguageModel
from fairseq.tasks import TASK_REGISTRY
from torch import Tensor

from collab_common.errors import UserError
from collab_lab.trained.attentions import attentions
from fairseq_compat.fairseq_fixes import UNDEFINED

GIVE_DATA = "give the data folder that fairseq-preprocess wrote"


def check_data(data: str | Path, todo: str = GIVE_DATA) -> None:
    """Raise UserError unless the data folder, or every folder joined by colons, exists."""
    for folder in utils.split_paths(str(data)):
        if not Path(folder).is_dir():
            raise UserError("data folder not found", folder, todo)


def check_task(options: Any) -> None:
    """Raise UserError if no task of this name is registered."""
    name = getattr(options, "_name", None) or getattr(options, "task", None)
    if name and name not in TASK_REGISTRY:
        todo = "name the folder of its plug-in with --user-dir, in Python import it first"
        raise UserError(f"no task is registered as {name!r}", todo=todo)


def check_device(device: torch.device | str) -> None:
    """Raise UserError unless the device is ``cpu`` or a GPU of this machine (``cuda``)."""
    known = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
    try:
        kind = torch.device(device).type
    except RuntimeError:  # torch's, for any other word
        kind = ""
    if kind not in known:
        raise UserError(f"there is no {str(device)!r}", "`device`", f"give {' or '.join(known)}")


def check_dictionaries(task: Any, state: Mapping[str, Any], path: Path) -> None:
    """Raise UserError if a dictionary of the data folder and the embeddings differ in size."""
    for side, stack in (("source", "encoder"), ("target", "decoder")):
        embedding = state["model"].get(f"{stack}.embed_tokens.weight")
        if embedding is None:  # of other kinds
            continue
        words = len(getattr(task, f"{side}_dictionary"))
        if words != len(embedding):
            problem = f"its {side} dictionary has {words} symbols, the model {len(embedding)}"
            todo = f"give the folder that {path} was trained on"
            raise UserError(problem, state["cfg"].task.data, todo)


def check_transformer(model: Any, path: Path) -> None:
    """Raise UserError unless the model is a transformer for translation or a language model."""
    needed = {"decoder"} if isinstance(model, FairseqLanguageModel) else {"encoder", "decoder"}
    if not needed <= {a.type for a in attentions(model)}:
        problem = "is neither an encoder-decoder transformer nor a transformer language model"
        todo = "give a checkpoint of a translation model or a language model"
        raise UserError(problem, path, todo)


def check_direction(task: Any, path: Path, todo: str) -> None:
    """Raise UserError if a multilingual task does not say which languages to translate."""
    pairs = getattr(task, "lang_pairs", None)
    if pairs and not (task.source_lang and task.target_lang):
        raise UserError(f"translates {', '.join(pairs)}", path, todo)


def check_finite(
    weights: Mapping[str, Tensor],
    path: Path | str,
    when: str = "",
    todo: str = "give an intact checkpoint",
) -> None:
    """Raise UserError if a weight is NaN or infinite."""
    for name, weight in weights.items():
        defined = weight.is_floating_point() and not name.endswith(UNDEFINED)  # nothing reads those
        if defined and not torch.isfinite(weight).all():
            raise UserError(f"{name} holds NaN or infinity {when}".rstrip(), path, todo)
