"""A classifier of Hugging Face's in a local folder: loaded, swapped, saved.

Nothing is downloaded and no code of a folder is executed: transformers is offline, remote code is
refused, and weights are safetensors or read with torch's ``weights_only``.

What is saved with collaborative heads says so in its ``config.json`` (``collaborative_key_dim``),
and :func:`load` loads it again.
"""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collab_common.errors import UserError, first_line
from collab_common.folder import whole_folder
from fairseq_collab.adapters.glue.tasks import Task
from fairseq_collab.adapters.swap import swap_attention
from fairseq_collab.attention import CollaborativeAttention

KEY_DIM = "collaborative_key_dim"
WEIGHTS = "model.safetensors"
MODEL = "nothing is downloaded: give a folder with a model of Hugging Face's"
#: Weights that a model has first got for a task: missing from what was trained on text alone.
_OF_TASK = {"classifier", "pooler", "pre_classifier", "score"}


@dataclass
class Classifier:
    """A model, and what makes its input of text."""

    model: Any
    tokenizer: Any

    @property
    def key_dim(self) -> int:
        """Size of queries and keys, all heads together."""
        swapped: int | None = getattr(self.model.config, KEY_DIM, None)
        return swapped or self.model.config.hidden_size

    @property
    def is_swapped(self) -> bool:
        return hasattr(self.model.config, KEY_DIM)

    @property
    def heads_by_layer(self) -> list[int]:
        config = self.model.config
        return [config.num_attention_heads] * config.num_hidden_layers

    def swap(self, key_dim: int, seed: int) -> None:
        """Swap all heads for collaborative ones; raises UserError if they cannot be, or were."""
        if self.is_swapped:
            what = f"has collaborative heads already, of key dimension {self.key_dim}"
            todo = "give the model before the swap, or leave --key-dim out"
            raise UserError(what, "--key-dim", todo)
        swap_attention(self.model, key_dim, seed=seed)
        setattr(self.model.config, KEY_DIM, key_dim)

    def save(self, folder: Path) -> None:
        """Write model and tokenizer, whole or not at all."""
        with whole_folder(folder) as part:
            self.model.save_pretrained(part)
            self.tokenizer.save_pretrained(part)


def load(folder: Path, task: Task) -> Classifier:
    """The model in a folder as a classifier of a task; what the task adds is random (seed first).

    Raises:
        UserError: there is no such model, it is damaged, lacks weights, or is not for the task.
    """
    if not folder.is_dir():
        raise UserError("there is no such folder", folder, MODEL)
    if not (folder / "config.json").is_file():
        raise UserError("there is no config.json in it", folder, MODEL)
    auto = _library()
    local = {"local_files_only": True, "trust_remote_code": False}
    problem = "single_label_classification" if task.classes else "regression"
    try:
        config = auto.AutoConfig.from_pretrained(
            folder, num_labels=len(task.classes) or 1, problem_type=problem, **local
        )
        tokenizer = auto.AutoTokenizer.from_pretrained(folder, **local)
        model, lacking = _model(auto, folder, config, local)
    except (OSError, ValueError, RuntimeError, KeyError, pickle.UnpicklingError) as error:
        raise UserError(f"cannot be loaded: {first_line(error)}", folder, MODEL) from error
    known = model.base_model_prefix + "."
    lost = [x for x in lacking if x.startswith(known) and _OF_TASK.isdisjoint(x.split("."))]
    if lost:
        what = f"lacks {len(lost)} weights of a {type(model).__name__}, such as {sorted(lost)[0]}"
        raise UserError(what, folder, "give an intact model")
    return Classifier(model, tokenizer)


def _model(auto: Any, folder: Path, config: Any, local: dict[str, bool]) -> tuple[Any, list[str]]:
    """The model, and the names of weights that the folder has none for."""
    kind = auto.AutoModelForSequenceClassification
    if not hasattr(config, KEY_DIM):
        model, found = kind.from_pretrained(
            folder, config=config, attn_implementation="eager", output_loading_info=True, **local
        )
        return model, list(found["missing_keys"])
    from safetensors.torch import load_file

    model = kind.from_config(config, attn_implementation="eager", trust_remote_code=False)
    swap_attention(model, getattr(config, KEY_DIM), max_steps=0)
    model.load_state_dict(load_file(folder / WEIGHTS))  # all of them, or RuntimeError
    return model, []


def attention_parameters(model: Any) -> int:
    """Parameters of queries, keys, values and mixing; output projections belong to other modules.

    The same before and after the swap but for what the swap changes.
    """
    from fairseq_collab.adapters import hugging_face

    found: dict[int, Any] = {}
    for module in model.modules():
        if isinstance(module, CollaborativeAttention):
            inside: Iterable[Any] = module.parameters()
        elif parts := hugging_face.parts(module):
            inside = (one for pair in parts[1]["projections"] for one in pair if one is not None)
        else:
            continue
        found |= {id(parameter): parameter for parameter in inside}
    return sum(parameter.numel() for parameter in found.values())


def _library() -> Any:
    """transformers, offline and quiet."""
    os.environ["HF_HUB_OFFLINE"] = os.environ["TRANSFORMERS_OFFLINE"] = "1"  # it reads them once
    try:
        import transformers
    except ModuleNotFoundError as error:
        todo = "pip install -c constraints.txt '.[glue]' with Python 3.11 or newer"
        raise UserError("GLUE needs the package transformers", todo=todo) from error
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers
