"""The model card of ``fairseq-collab export --format hf``: README.md for Hugging Face's hub."""

from __future__ import annotations

import math
from importlib.metadata import version
from pathlib import Path

import torch

from collab_lab.export.check import validation_sources
from collab_lab.export.model import Vocabulary, longest_output, vocabulary
from collab_lab.metrics.cost import cost
from collab_lab.results.render import named, render
from collab_lab.runs.run import Run
from collab_lab.runs.translations import manifest
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.configuration import training_options


def write(trained: Trained, data: Path | None, folder: Path, title: str) -> None:
    """Write what files near the checkpoint record of the model, which ``folder`` holds."""
    words = vocabulary(trained, data)
    run, trained_on = Run(trained.path.resolve().parent), Path(trained.cfg.task.data)
    text = render(
        "card.md.j2",
        title=title,
        version=version("fairseq-collab"),
        words=words,
        example=repr(example(words)),
        longest=(trained.model.max_positions()[0], longest_output(trained.model)),
        kind=named(trained.arch),
        options=training_options(trained),
        cost=cost(trained.model),
        data=trained_on.name,
        sets=manifest(trained_on).get("sets"),
        score=run.score() if trained.path.name == run.average.name else None,
        nats_per_bit=math.log(2),
    )
    (folder / "README.md").write_text(text, encoding="utf-8")


def example(words: Vocabulary) -> str:
    """Text in the source language: the first sentence of the validation set, else some words."""
    first = len(words.source) // 2
    some = torch.arange(first, min(first + 5, len(words.source)))
    [sentence] = validation_sources(words, 1) or [some]
    return str(words.source.string(sentence, "sentencepiece" if words.subwords else None))
