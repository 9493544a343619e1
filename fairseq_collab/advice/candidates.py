"""Smaller models of a trained model: the methods that make them, and the sizes to try.

A candidate is a method and a size for each *place* that shrinks: the attentions of one type, or the
feed-forward layers (``ffn``), which every method can narrow first.

    narrow           nothing else
    heads            heads are removed, the least important of an attention type first (Michel et
                     al. 2019, arXiv 1905.10650)
    collab           heads share keys of width K (Cordonnier et al. 2020, arXiv 2006.16362)
    collab-values    and one head of values
    grouped-query    heads share G heads of keys and values (Ainslie et al. 2023, arXiv 2305.13245)
    latent           keys and values come from r numbers per token (DeepSeek-V2, arXiv 2405.04434)

Nothing is trained here.  :meth:`Method.commands` has the commands that make the same model by hand.
"""

from __future__ import annotations

import functools
import shlex
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collab_common.errors import UserError
from fairseq_collab.analysis.importance import Importance
from fairseq_collab.convert import source
from fairseq_collab.convert.kinds import TARGETS
from fairseq_collab.convert.work import Reparametrizer
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.prune import surgery
from fairseq_collab.prune.choices import all_heads, without_gates, without_least
from fairseq_collab.trained.attentions import attentions
from fairseq_collab.trained.opener import Trained

FFN = "ffn"
PLACES = (*SITES, FFN)
#: Sizes to try, as shares of the place's own size.
SHARES = (0.75, 0.5, 0.375, 0.25, 0.125)
FFN_SHARES = (0.75, 0.5, 0.25)
#: Sentences of the calibration, and the set that they and the importance of heads come from.
CALIBRATION, SUBSET = 1000, "train"
HEADS, NARROW = "heads", "narrow"
MEANS = {
    NARROW: "fewer units in each feed-forward layer",
    HEADS: "heads are removed; the number stays in all layers of an attention type together",
    "collab": "all heads of an attention share keys of this width",
    "collab-values": "all heads of an attention share keys of this width, and one head of values",
    "grouped-query": "this many heads of keys and values serve all heads of queries",
    "latent": "keys and values are made from this many numbers per token, which alone are cached",
}
PLACES_MEAN = (
    "encoder, decoder: self-attention; cross: cross-attention; ffn: units of a feed-forward layer"
)


@dataclass(frozen=True)
class Candidate:
    """A smaller model that can be made.

    Attributes:
        method: a key of :data:`MEANS`.
        sizes: ``(place, size)`` of the places that shrink, in the order of :data:`PLACES`.
    """

    method: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """``collab encoder=32 ffn=256``."""
        return " ".join([self.method, *(f"{place}={size}" for place, size in self.sizes)])


def candidate(method: str, sizes: Mapping[str, int]) -> Candidate:
    """The candidate with these sizes; other places keep their size.

    Narrower feed-forward layers alone are the same model by every method.
    """
    method = NARROW if set(sizes) == {FFN} else method
    return Candidate(method, tuple((place, sizes[place]) for place in PLACES if place in sizes))


class Method:
    """Makes a trained model smaller; this one narrows feed-forward layers, subclasses do more.

    Constructors raise UserError where the model does not allow the method.

    Args:
        name: a key of :data:`MEANS`.
        trained: in eval mode, without gates.
        narrowed: gives the model with this number of units per feed-forward layer; None keeps all.
        batches: of fairseq's, with targets: importance of heads is measured on them.
    """

    #: The command that shrinks attentions by hand.
    command: str

    def __init__(
        self,
        name: str,
        trained: Trained,
        narrowed: Callable[[int | None], Trained],
        batches: Sequence[dict[str, Any]],
    ):
        self.name, self.trained, self.narrowed, self.batches = name, trained, narrowed, batches
        #: Largest sizes of attention types that change as soon as another one does.
        self.base: dict[str, int] = {}

    def sizes(self) -> dict[str, list[int]]:
        """The sizes to try of each place that can shrink, the largest first."""
        found: dict[str, list[int]] = {
            site: self.site_sizes(site) for site in SITES if self.trained.attentions[site]
        }
        layers = [one for one in self.trained.model.modules() if hasattr(one, "fc1")]
        found[FFN] = _shares(min(layer.fc1.out_features for layer in layers), FFN_SHARES)
        return {place: sizes for place, sizes in found.items() if sizes}

    def make(self, one: Candidate) -> Trained:
        """The candidate's model, in eval mode."""
        sizes = dict(one.sizes)
        narrowed = self.narrowed(sizes.pop(FFN, None))
        return self.shrink(narrowed, sizes) if sizes else narrowed

    def commands(self, one: Candidate, checkpoint: str, data: str, out: str) -> list[str]:
        """The commands that make the same model by hand."""
        sizes, lines = dict(one.sizes), []
        units = sizes.pop(FFN, None)
        if units is not None:
            target = "narrow.pt" if sizes else out
            lines.append(["prune", checkpoint, data, "--ffn-dim", str(units), "--out", target])
            checkpoint = target
        if sizes:
            data_words = [data] if self.command == "prune" else ["--data", data]
            lines.append(
                [self.command, checkpoint, *data_words, *self.options(sizes), "--out", out]
            )
        return [shlex.join(["fairseq-collab", *line]) for line in lines]

    def site_sizes(self, site: Site) -> list[int]:
        """The sizes to try of an attention type."""
        return []

    def shrink(self, base: Trained, sizes: Mapping[str, int]) -> Trained:
        """``base``, a result of :attr:`narrowed`, with smaller attentions of these types."""
        raise NotImplementedError

    def options(self, sizes: Mapping[str, int]) -> list[str]:
        """The options with which :attr:`command` does the work of :meth:`shrink`."""
        raise NotImplementedError


class Heads(Method):
    """Removes heads; the importances of a layer's heads have length 1."""

    command = "prune"

    def __init__(self, name: str, trained: Trained, *args: Any):
        surgery.check_heads(trained)
        super().__init__(name, trained, *args)
        self.importance = functools.cache(self._importance)

    def site_sizes(self, site: Site) -> list[int]:
        return _shares(sum(self.trained.heads[site]), SHARES)

    def kept(self, sizes: Mapping[str, int]) -> surgery.Kept:
        """The heads that stay."""
        kept: surgery.Kept = all_heads(self.trained.heads)
        for site in SITES:
            if site in sizes:
                removed = sum(self.trained.heads[site]) - sizes[site]
                kept = without_least(kept, self.importance(), [site], removed)
        return kept

    def shrink(self, base: Trained, sizes: Mapping[str, int]) -> Trained:
        return surgery.pruned(base, self.kept(sizes))

    def options(self, sizes: Mapping[str, int]) -> list[str]:
        kept = self.kept(sizes)
        chosen = [
            f"{site}:" + "/".join(",".join(map(str, heads)) or "-" for heads in kept[site])
            for site in SITES
            if site in sizes
        ]
        return ["--keep-heads", *chosen]

    def _importance(self) -> dict[Site, list[list[float]]]:
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

    command = "reparametrize"

    def __init__(self, name: str, trained: Trained, *args: Any):
        super().__init__(name, trained, *args)
        self.to, self.chosen = SHARING[name]
        self.args = Namespace(**{**USUAL, **self.chosen}, to=self.to)
        self.target = TARGETS[self.to](self.args)
        source.check(trained, self.target)
        for one in attentions(trained.model):
            self.target.check(one, trained.path)
        self.base = {
            site: self._largest(site)
            for site, found in trained.attentions.items()
            if any(self.target.converts(one.module) for one in found)
        }
        #: Calibrated once per model of :attr:`narrowed`.
        self.work: dict[int, Reparametrizer] = {}

    def site_sizes(self, site: Site) -> list[int]:
        modules = [one.module for one in self.trained.attentions[site]]
        return [
            size
            for size in _shares(self._largest(site), SHARES)
            if not any(self.target.out_of_range(module, size) for module in modules)
        ]

    def _largest(self, site: Site) -> int:
        return min(self.target.largest(one.module) for one in self.trained.attentions[site])

    def shrink(self, base: Trained, sizes: Mapping[str, int]) -> Trained:
        if id(base) not in self.work:
            self.work[id(base)] = Reparametrizer(base, self.args, attentions(base.model))
        work = self.work[id(base)]
        found = base.attentions
        places = {one: sizes[site] for site in SITES if site in sizes for one in found[site]}
        return work.model(places)[0]

    def options(self, sizes: Mapping[str, int]) -> list[str]:
        option = f"--{self.target.size.replace('_', '-')}-in"
        words = ["--to", self.to]
        for site in SITES:
            if self.trained.attentions[site]:
                words += [f"{option}-{site}", str(sizes.get(site, 0))]
        for name, value in self.chosen.items():
            words += [f"--{name.replace('_', '-')}", str(value)]
        return words


def methods(
    trained: Trained, batches: Sequence[dict[str, Any]]
) -> tuple[dict[str, Method], dict[str, str]]:
    """All methods that this model allows, by name; and why it does not allow the others."""
    trained = without_gates(trained)

    @functools.cache  # all methods share these models
    def narrowed(units: int | None) -> Trained:
        return trained if units is None else surgery.narrowed(trained, units)

    found: dict[str, Method] = {}
    refused: dict[str, str] = {}
    kinds: dict[str, type[Method]] = {
        NARROW: Method, HEADS: Heads, **dict.fromkeys(SHARING, Sharing)
    }  # fmt: skip
    for name, kind in kinds.items():
        try:
            found[name] = kind(name, trained, narrowed, batches)
        except UserError as error:
            refused[name] = error.what
    return found, refused


def _shares(whole: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers at these shares of ``whole``, each once, smaller than it and above 0."""
    found = (round(share * whole) for share in shares)
    return list(dict.fromkeys(size for size in found if 0 < size < whole))
