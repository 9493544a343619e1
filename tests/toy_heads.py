"""Toy models with every kind of heads, and a batch for them: for tests of analysis."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import toy
from omegaconf import OmegaConf

from collab_lab.trained import fine_tuning
from collab_lab.trained.checkpoint import Trained

#: Every kind of attention, with sizes that no rule of thumb gives.
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "stock": ("transformer", {}),
    "concatenated": ("transformer_collab", {"key_dim": 0}),
    "collaborative": ("transformer_collab", {"key_dim": 6}),
    "grouped": ("transformer_grouped_heads", {"head_groups": 2}),
    "gated": ("transformer_gated_heads", {}),
    "shared keys": ("transformer_grouped_query", {"key_value_heads": 2}),
    "shared values": ("transformer_collab", {"key_dim": 6, "value_heads": 2}),
    "latent": ("transformer_latent", {"latent_dim": 6, "latent_dim_in_cross": "3"}),
    "sizes": (
        "transformer_headsize_n",
        {"qk_head_size": 3, "v_head_size": 5, "heads_in_encoder": "2,5"},
    ),
}


def build(kind: str, noise: float = 0.1, **options: Any) -> Any:
    """A model in eval mode and double precision, with biases and norms not at 0 and 1."""
    arch, given = MODELS[kind]
    torch.manual_seed(1)
    model: Any = toy.model(arch, **{**given, **options}).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(noise * torch.randn_like(parameter))
    model.load_state_dict(model.state_dict())  # from then on fairseq would fuse encoder layers
    return model


def sample(sentence: int | None = None, lm: bool = False) -> dict[str, Any]:
    """The toy batch with targets, or one sentence of it; of a language model, its target side."""
    net_input, symbols = toy.batch(), toy.dictionary()
    previous = net_input["prev_output_tokens"]
    target = torch.cat([previous[:, 1:], torch.full_like(previous[:, :1], symbols.pad())], 1)
    target[torch.arange(len(target)), previous.ne(symbols.pad()).sum(1) - 1] = symbols.eos()
    if sentence is not None:
        net_input = {name: x[sentence : sentence + 1] for name, x in net_input.items()}
        target = target[sentence : sentence + 1]
    if lm:
        net_input = {"src_tokens": net_input["prev_output_tokens"]}
    return {
        "net_input": net_input,
        "target": target,
        "ntokens": int(target.ne(symbols.pad()).sum()),
    }


def write_configuration(path: Path, encoder: str, decoder: str, cross: str, **options: Any) -> Path:
    """An empty checkpoint with the configuration of a pruned model as PATH.yaml."""
    heads = {"heads_in_encoder": encoder, "heads_in_decoder": decoder, "heads_in_cross": cross}
    model = {"_name": "transformer_headsize_n", **heads, **options}
    path.touch()
    criterion = {"_name": "label_smoothed_cross_entropy", "label_smoothing": 0.1}
    parts = {"model": model, "task": {"_name": "translation"}, "criterion": criterion}
    cfg = OmegaConf.create(parts)
    fine_tuning.write_configuration(Trained(path, {"cfg": cfg}, None, None), path)
    path.with_suffix(".yaml").rename(f"{path}.yaml")
    return path


def double(numbers: list) -> torch.Tensor:
    """Nested lists, as a tensor."""
    return torch.tensor(numbers, dtype=torch.float64)
