"""Tiny trained models, one word of which has a hundred times the activations of the others.

``python tests/toy_massive.py`` trains them anew on ``tests/stored/copy`` and writes
``tests/stored/massive``.  So are many trained transformers (Sun et al. 2024, arXiv 2402.17762):
a hidden unit of a feed-forward block answers to some words only, with a large output.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import toy
import toy_checkpoints

from collab_lab import open_model
from collab_lab.metrics.loss import cross_entropy
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import samples

FOLDER = toy_checkpoints.STORED / "massive"
PRE_NORM = {f"{side}_normalize_before": True for side in ("encoder", "decoder")}
#: Options of each model, and root mean squares of what its units add to the stream.
MODELS: dict[str, tuple[dict[str, Any], float]] = {"post": ({}, 300), "pre": (PRE_NORM, 100)}
WORD = "w8"


def massive(name: str) -> Trained:
    """The stored model."""
    return open_model(FOLDER / f"{name}.pt", toy_checkpoints.COPY)


def make(path: Path, options: dict[str, Any], size: float) -> None:
    """Train a model, add the units to both encoder layers, and train on."""
    options = {"dropout": 0.0, "attention_dropout": 0.0, **options}
    model = open_model(toy_checkpoints.write(path, **options), toy_checkpoints.COPY)
    torch.manual_seed(2)
    new = toy.build("transformer", model.task, {**toy.SIZES, **options})
    model.model.load_state_dict(new.state_dict())
    text = samples(model, "train")
    train(model.model, text, 300, 0.01)
    for layer in model.model.encoder.layers:
        answer_to_word(model, layer, text, size)
    train(model.model, text, 60, 0.003)
    for part in (model.cfg.task, model.cfg.model):
        part.data = "data-bin"
    model.save(path)


def train(model: Any, batches: list[dict[str, Any]], updates: int, rate: float) -> None:
    optimizer = torch.optim.Adam(model.train().parameters(), rate)
    for update in range(updates):
        batch = batches[update % len(batches)]
        optimizer.zero_grad()
        (cross_entropy(model, batch).sum() / batch["ntokens"]).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    model.eval()


@torch.no_grad()
def answer_to_word(model: Trained, layer: Any, text: list[dict[str, Any]], size: float) -> None:
    """Let the first hidden unit of a layer be 0 but for :data:`WORD`: by linear discrimination."""
    symbols, seen = model.task.source_dictionary, []
    with layer.fc1.register_forward_pre_hook(lambda _, args: seen.append(args[0].flatten(0, 1))):
        for batch in text:
            model.model(**batch["net_input"])
    x = torch.cat(seen)
    tokens = torch.cat([batch["net_input"]["src_tokens"].T.flatten() for batch in text])
    is_word = tokens == symbols.index(WORD)
    of_word, others = x[is_word], x[~is_word & tokens.ne(symbols.pad())]
    covariance = torch.cat([part - part.mean(0) for part in (of_word, others)]).T.cov()
    covariance += 0.3 * covariance.diagonal().mean() * torch.eye(len(covariance))
    direction = torch.linalg.solve(covariance, of_word.mean(0) - others.mean(0))
    least = (others @ direction).max()
    scale = 1 / ((of_word @ direction).mean() - least)
    layer.fc1.weight[0], layer.fc1.bias[0] = scale * direction, -scale * least
    output = torch.randn(x.size(1))
    layer.fc2.weight[:, 0] = size * (output - output.mean()) / output.std()


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, arguments in MODELS.items():
        make(FOLDER / f"{name}.pt", *arguments)
