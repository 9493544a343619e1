"""Hydra configurations of pruned models: to fine-tune them, and to train their shape from scratch.

    PRUNED/NAME.pt                   checkpoints of fairseq-collab prune
    PRUNED/tuned/model/NAME.yaml     ``model=NAME`` goes on with the checkpoint
    PRUNED/scratch/model/NAME.yaml   ``model=NAME`` has its heads, and weights of its own

Each pruned model has a shape of its own.  With one of the folders in Hydra's search path, all of
them are choices of one sweep:

    python -m fairseq_collab.prune.shapes PRUNED
    fairseq-collab sweep configs/experiment/... hydra.searchpath=[file://PRUNED/tuned] \\
        model="choice(NAME,NAME)"
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml
from fairseq.dataclass import FairseqDataclass
from fairseq.models import MODEL_DATACLASS_REGISTRY
from omegaconf import OmegaConf

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import write_atomic
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.models.site_options import one_a_layer
from fairseq_collab.prune.surgery import HEADSIZE
from fairseq_compat import checkpoints

#: What of a pruned model's options is its shape, and so is said even if it is the default.
SHAPE = (
    *(f"heads_in_{site}" for site in SITES),
    *("qk_head_size", "v_head_size", "encoder_ffn_embed_dim", "decoder_ffn_embed_dim"),
)
#: Options that say how a model was trained or stored, and nothing of what it computes.
_OF_TRAINING = {
    *("encoder_embed_path", "decoder_embed_path", "encoder_layers_to_keep"),
    *("decoder_layers_to_keep", "quant_noise_pq", "quant_noise_pq_block_size"),
    *("quant_noise_scalar", "min_params_to_wrap", "checkpoint_activations"),
    *("offload_activations", "export"),
}
KINDS = ("tuned", "scratch")
HEADER = "# @package _global_\n# The heads of {name}, a pruned model; `model={stem}` of a sweep\n"


def own_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The shape of a model, and what else of its options is not its architecture's default.

    With others of these it may compute something else, though its weights load without a word.
    """
    defaults = known_defaults(options["_name"]).items()
    others = [name for name, default in defaults if options.get(name, default) != default]
    return _given(options, [*SHAPE, *others])


def known_defaults(arch: str) -> dict[str, Any]:
    """What of an architecture's options says what a model computes, with its defaults."""
    # fairseq's models of the old kind, such as those of plug-ins, have no defaults that we know.
    known = OmegaConf.structured(MODEL_DATACLASS_REGISTRY.get(arch, FairseqDataclass))
    values: Any = OmegaConf.to_container(known, enum_to_str=True)
    return {
        name: default
        for name, default in values.items()
        if name not in {"_name", *_OF_TRAINING}
        and not str(default).startswith("${")  # of the task, or of the whole training
    }


def _given(options: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: options[name] for name in names if options.get(name) is not None}


def options_of(checkpoint: Path) -> dict[str, Any]:
    """The model's options in a checkpoint of ``fairseq-collab prune``."""
    state = checkpoints.read(checkpoint)
    options = (state.get("cfg") or {}).get("model")
    if not isinstance(options, dict) or options.get("_name") != HEADSIZE:
        todo = "give checkpoints that fairseq-collab prune has written"
        raise UserError(f"not a {HEADSIZE}", where=checkpoint, todo=todo)
    return options


def heads_of(checkpoint: Path) -> dict[Site, list[int]]:
    """How many heads each layer of a checkpoint of ``fairseq-collab prune`` has, by site."""
    options, found = options_of(checkpoint), {}
    for site in SITES:
        text = str(options.get(f"heads_in_{site}"))
        side = "encoder" if site == "encoder" else "decoder"
        layers = options.get(f"{side}_layers") or len(text.split(","))
        try:
            numbers = one_a_layer(f"heads_in_{site}", text, layers, least=0)
        except ValueError as error:
            raise UserError(str(error), where=checkpoint) from error
        found[site] = numbers or []
    return found


def configuration(checkpoint: Path, kind: str) -> str:
    """The text of a configuration: the shape, or of kind ``tuned`` the model and its start."""
    options = options_of(checkpoint)
    # A tuned model says all of its own: other parts of a configuration may say otherwise.
    names = SHAPE if kind == "scratch" else (*SHAPE, *known_defaults(HEADSIZE))
    content: dict[str, Any] = {"defaults": ["concatenated@model"], "model": _given(options, names)}
    if kind == "tuned":
        content["checkpoint"] = {"finetune_from_model": str(checkpoint.resolve())}
    header = HEADER.format(name=checkpoint.name, stem=checkpoint.stem)
    return header + yaml.safe_dump(content, sort_keys=False)


def write(folder: Path) -> list[str]:
    """Write the configurations of all checkpoints in a folder; the models' names."""
    found = sorted(folder.glob("*.pt"))
    if not found:
        todo = "put checkpoints of fairseq-collab prune there"
        raise UserError("there is no checkpoint in it", where=folder, todo=todo)
    texts = {
        folder / kind / "model" / f"{checkpoint.stem}.yaml": configuration(checkpoint, kind)
        for kind in KINDS
        for checkpoint in found
    }
    try:
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomic(path, text)
    except OSError as error:
        raise UserError(f"cannot be written: {error.strerror or error}", where=folder) from error
    return [checkpoint.stem for checkpoint in found]


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m fairseq_collab.prune.shapes",
        description="Hydra configurations to fine-tune pruned models, and to train models of their "
        "shapes from scratch. Prints the names of the models, joined by commas.",
    )
    parser.add_argument("folder", type=Path, help="with checkpoints of fairseq-collab prune")
    folder = parser.parse_args(argv).folder
    return run(parser.prog, lambda: print(",".join(write(folder))))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
