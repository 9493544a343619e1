"""A trained model on one or several texts, and models that are made of it."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from collab_lab import open_model
from collab_lab.metrics.loss import mean_bits
from collab_lab.shrinking.evidence import Evidence
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import dataset_of, samples

#: The text that all models have; "sentences" are shorter ones, and "other" is another text.
DOCUMENTS = "documents"
TEXTS = (DOCUMENTS, "sentences", "other")
SETS = ("valid", "test")


class Text:
    """A trained model on a data folder: calibration sentences, and held-out sets.

    Attributes:
        number: of calibration sentences.
        next: the checkpoint of another seed.
    """

    def __init__(self, checkpoint: Path, data: Path, number: int, **changed: Any):
        self.checkpoint, self.data, self.number = checkpoint, data, number
        self.model, self.next = open_model(checkpoint, data, **changed), checkpoint

    @property
    def length(self) -> float:
        """Mean number of target tokens of a sentence, or document, of the training set."""
        dataset = dataset_of(self.model, "train")
        return float(getattr(dataset, "tgt_sizes", dataset.sizes).mean())

    @functools.cached_property
    def found(self) -> Evidence:
        """What one pass over the calibration sentences shows."""
        return Evidence.of(self.model, sentences=self.number)

    @functools.cached_property
    def held_out(self) -> dict[str, Any]:
        """Batches of the validation and the test set."""
        return {name: samples(self.model, name) for name in SETS}

    @functools.cached_property
    def bits(self) -> dict[str, float]:
        """The model's own losses."""
        return {name: mean_bits(self.model.model, of) for name, of in self.held_out.items()}

    def whole(self, model: Trained) -> float:
        """The loss of a model on both sets together."""
        return mean_bits(model.model, [batch for name in SETS for batch in self.held_out[name]])

    @functools.cached_property
    def own(self) -> float:
        """The model's own loss on both sets together."""
        return self.whole(self.model)

    @property
    def width(self) -> int:
        """d, of the decoder."""
        return int(self.model.options["decoder_embed_dim"])


class Work:
    """A trained model of the command line, which is opened when a row needs it.

    Args:
        folders: data folders, by the names of texts.
        sentences: to calibrate on; of documents, as many as have equally many tokens.
        block: tokens of a block of the short text of a language model.
        group: of the models that a table averages.

    Attributes:
        other: the checkpoint of the next model of the command line, another seed.
    """

    def __init__(
        self, name: str, checkpoint: Path, folders: Mapping[str, Path], sentences: int,
        block: int | None = None, group: str | None = None,
    ):  # fmt: skip
        self.name, self.checkpoint, self.other, self.group = name, checkpoint, checkpoint, group
        self.folders, self.sentences, self.block = folders, sentences, block
        self.made: tuple[Any, Any] = None, None  # the last change, and its model

    @functools.cached_property
    def texts(self) -> dict[str, Text]:
        """The model on each text."""
        texts = {
            name: Text(self.checkpoint, folder, self.sentences)
            for name, folder in self.folders.items()
        }
        if self.block is not None:
            short = {"tokens_per_sample": self.block}
            folder = self.folders[DOCUMENTS]
            texts["sentences"] = Text(self.checkpoint, folder, self.sentences, **short)
        if "sentences" in texts:
            longer = texts[DOCUMENTS].length / texts["sentences"].length
            texts[DOCUMENTS].number = max(1, round(self.sentences / longer))
        return texts

    def has(self, text: str) -> bool:
        """Whether it has a text of this name."""
        return text in self.folders or (text == "sentences" and self.block is not None)

    @property
    def main(self) -> Text:
        """The text that all models have."""
        return self.texts[DOCUMENTS]


class Made(NamedTuple):
    """A changed model: the first attributes of :class:`collab_lab.shrinking.smaller.Smaller`."""

    model: Trained
    plan: Any = None
    rise: float = math.nan
    shares: Mapping[str, float] = {}


class Case(NamedTuple):
    """A changed model.

    Attributes:
        work: the trained model.
        text: what the change is calibrated on.
        made: the changed model, with its plan.
    """

    work: Work
    text: Text
    made: Any
