"""Smaller models of a trained model: the methods that make them, and the sizes to try.

    heads            heads are removed, the least important of an attention type first (Michel et
                     al. 2019, arXiv 1905.10650)
    collab           heads share keys of width K (Cordonnier et al. 2020, arXiv 2006.16362)
    collab-values    and one head of values
    grouped-query    heads share G heads of keys and values (Ainslie et al. 2023, arXiv 2305.13245)
    latent           keys and values come from r numbers per token (DeepSeek-V2, arXiv 2405.04434)

Nothing is trained here.  :meth:`Method.command` is the command that makes a candidate by hand.
"""

from __future__ import annotations

import functools
import shlex
from abc import ABC, abstractmethod
from argparse import Namespace
from collections.abc import Sequence
from typing import Any

from collab_common import ATTENTION_TYPES, AttentionType
from collab_common.errors import UserError
from fairseq_collab.advice.plan import HEADS, Candidate
from fairseq_collab.analysis.importance import Importance
from fairseq_collab.convert.conversion import Reparametrizer, check
from fairseq_collab.convert.kinds import TARGETS
from fairseq_collab.prune import surgery
from fairseq_collab.prune.choices import all_heads, without_gates, without_least
from fairseq_collab.trained.attentions import attentions
from fairseq_collab.trained.opener import Trained

#: Sizes to try, as shares of the place's own size.
SHARES = (0.75, 0.5, 0.375, 0.25, 0.125)
#: Sentences of the calibration, and the set that they and the importance of heads come from.
CALIBRATION, SUBSET = 1000, "train"


class Method(ABC):
    """Makes a trained model smaller.

    Constructors raise UserError where the model does not allow the method.

    Args:
        name: a key of :data:`MEANS`.
        trained: in eval mode, without gates.
        batches: of fairseq's, with targets: importance of heads is measured on them.
    """

    def __init__(self, name: str, trained: Trained, batches: Sequence[dict[str, Any]]):
        self.name, self.trained, self.batches = name, trained, batches
        #: Largest sizes of attention types that change as soon as another one does.
        self.base: dict[str, int] = {}

    def sizes(self) -> dict[str, list[int]]:
        """The sizes to try of each place that can shrink, the largest first."""
        found = {
            type_: self.type_sizes(type_)
            for type_ in ATTENTION_TYPES
            if self.trained.attentions[type_]
        }
        return {place: sizes for place, sizes in found.items() if sizes}

    @abstractmethod
    def type_sizes(self, type_: AttentionType) -> list[int]:
        """The sizes to try of an attention type."""

    @abstractmethod
    def make(self, one: Candidate) -> Trained:
        """The candidate's model, in eval mode."""

    @abstractmethod
    def command(self, one: Candidate, checkpoint: str, data: str, out: str) -> str:
        """The command that makes the model by hand."""


class Heads(Method):
    """Removes heads; the importances of a layer's heads have length 1."""

    def __init__(self, name: str, trained: Trained, *args: Any):
        surgery.check_heads(trained)
        super().__init__(name, trained, *args)
        self.importance = functools.cache(self._importance)

    def type_sizes(self, type_: AttentionType) -> list[int]:
        return _shares(sum(self.trained.heads[type_]), SHARES)

    def kept(self, one: Candidate) -> surgery.Kept:
        """The heads that stay."""
        sizes = dict(one.sizes)
        kept: surgery.Kept = all_heads(self.trained.heads)
        for type_ in ATTENTION_TYPES:
            if type_ in sizes:
                removed = sum(self.trained.heads[type_]) - sizes[type_]
                kept = without_least(kept, self.importance(), [type_], removed)
        return kept

    def make(self, one: Candidate) -> Trained:
        return surgery.pruned(self.trained, self.kept(one))

    def command(self, one: Candidate, checkpoint: str, data: str, out: str) -> str:
        kept = self.kept(one)
        chosen = [
            f"{type_}:" + "/".join(",".join(map(str, heads)) or "-" for heads in kept[type_])
            for type_, _ in one.sizes
        ]
        words = ["prune", checkpoint, data, "--keep-heads", *chosen, "--out", out]
        return shlex.join(["fairseq-collab", *words])

    def _importance(self) -> dict[AttentionType, list[list[float]]]:
        importance = Importance(self.trained.model)
        for batch in self.batches:
            importance.add(batch)
        return importance.per_token()


#: Conversions: the value of ``fairseq-collab reparametrize --to``, and other options.
SHARING: dict[str, tuple[str, dict[str, Any]]] = {
    "grouped-query": ("grouped-query", {}),
    "latent": ("latent", {}),
    "collab": ("collab", {}),
    "collab-values": ("collab", {"value_heads": 1}),
}
#: The command's defaults of its other options.
USUAL = {
    "calibration": CALIBRATION, "subset": SUBSET, "query_mixing": "own", "value_heads": None,
}  # fmt: skip


class Sharing(Method):
    """Converts heads to heads that share: one of :data:`SHARING`."""

    def __init__(self, name: str, trained: Trained, *args: Any):
        super().__init__(name, trained, *args)
        self.to, self.chosen = SHARING[name]
        self.args = Namespace(**{**USUAL, **self.chosen}, to=self.to)
        self.target = TARGETS[self.to](self.args)
        check(trained, self.target)
        for one in attentions(trained.model):
            self.target.check(one, trained.path)
        self.base = {
            type_: self._largest(type_)
            for type_, found in trained.attentions.items()
            if any(self.target.converts(one.module) for one in found)
        }

    def type_sizes(self, type_: AttentionType) -> list[int]:
        modules = [one.module for one in self.trained.attentions[type_]]
        return [
            size
            for size in _shares(self._largest(type_), SHARES)
            if not any(self.target.out_of_range(module, size) for module in modules)
        ]

    def _largest(self, type_: AttentionType) -> int:
        return min(self.target.largest(one.module) for one in self.trained.attentions[type_])

    @functools.cached_property
    def _work(self) -> Reparametrizer:  # calibrates once
        return Reparametrizer(self.trained, self.args, attentions(self.trained.model))

    def make(self, one: Candidate) -> Trained:
        found = self.trained.attentions
        return self._work.model({each: size for type_, size in one.sizes for each in found[type_]})[
            0
        ]

    def command(self, one: Candidate, checkpoint: str, data: str, out: str) -> str:
        words = ["reparametrize", checkpoint, data, "--to", self.to]
        sizes = dict(one.sizes)
        for type_ in ATTENTION_TYPES:
            if self.trained.attentions[type_]:
                size = str(sizes.get(type_, 0))
                words += [f"--{self.target.size.replace('_', '-')}-in-{type_}", size]
        for name, value in self.chosen.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return shlex.join(["fairseq-collab", *words, "--out", out])


def methods(
    trained: Trained, batches: Sequence[dict[str, Any]]
) -> tuple[dict[str, Method], dict[str, str]]:
    """All methods that this model allows, by name; and why it does not allow the others."""
    trained = without_gates(trained)

    found: dict[str, Method] = {}
    rejected: dict[str, str] = {}
    kinds: dict[str, type[Method]] = {HEADS: Heads, **dict.fromkeys(SHARING, Sharing)}
    for name, kind in kinds.items():
        try:
            found[name] = kind(name, trained, batches)
        except UserError as error:
            rejected[name] = error.what
    return found, rejected


def _shares(whole: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers at these shares of ``whole``, each once, smaller than it and above 0."""
    found = (round(share * whole) for share in shares)
    return list(dict.fromkeys(size for size in found if 0 < size < whole))
