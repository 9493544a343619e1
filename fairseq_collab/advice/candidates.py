"""Smaller models of a trained one: the ways to make them, and what each place can shrink to.

A candidate is a way and a size for each *place* that shrinks: the attentions of a site, or the
feed-forward layers (``ffn``), which every way can narrow first.  Places shrink independently, so
that what was measured of one place alone says something of all combinations.

    narrow           nothing else
    heads            heads are gone, the least important of a site first (Michel et al. 2019)
    collab           heads share keys of size K (Cordonnier et al. 2020)
    collab-values    the same, and one head of values
    grouped-query    heads share G heads of keys and values (Ainslie et al. 2023)
    latent           keys and values come from r numbers per token (DeepSeek-V2, 2024)

Nothing is trained here.  ``prune`` and ``reparametrize`` do the work; the same commands, given by
hand, make the same model (:meth:`Way.commands`).
"""

from __future__ import annotations

import functools
import shlex
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from collab_common.errors import UserError
from fairseq_collab.analysis.importance import Importance
from fairseq_collab.convert import source
from fairseq_collab.convert.targets import TARGETS
from fairseq_collab.convert.work import Reparametrizer
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.prune import surgery
from fairseq_collab.prune.choices import all_heads, without_gates, without_least
from fairseq_collab.trained.attentions import attentions
from fairseq_collab.trained.opener import Trained

FFN = "ffn"
PLACES = (*SITES, FFN)
#: What a place shrinks to, as shares of the size that it has.
SHARES = (0.75, 0.5, 0.375, 0.25, 0.125)
FFN_SHARES = (0.75, 0.5, 0.25)
#: Sentences of the calibration and of the importance of heads, and where they are from.
CALIBRATION, SUBSET = 1000, "train"
HEADS, NARROW = "heads", "narrow"
#: What each way does, for readers who know none of the papers.
MEANS = {
    NARROW: "fewer units in each feed-forward layer",
    HEADS: "heads are gone; so many stay in all layers of a site, the most important ones",
    "collab": "all heads of an attention share queries and keys of this size, and each mixes them",
    "collab-values": "as collab, and all heads of an attention share one head's values, too",
    "grouped-query": "so many heads of keys and values serve all heads of queries",
    "latent": "keys and values of all heads are made of so many numbers per token, which alone are "
    "cached",
}
#: Names of places, likewise.
PLACES_MEAN = (
    "encoder, decoder: attention to the own side; cross: from decoder to encoder; ffn: units of a "
    "feed-forward layer"
)


@dataclass(frozen=True)
class Candidate:
    """A smaller model that can be made.

    Attributes:
        way: a key of :func:`ways`.
        sizes: of the places that shrink, as ``(place, size)`` in the order of :data:`PLACES`.
    """

    way: str
    sizes: tuple[tuple[str, int], ...]

    @property
    def name(self) -> str:
        """As in the report: ``collab encoder=32 ffn=256``."""
        return " ".join([self.way, *(f"{place}={size}" for place, size in self.sizes)])


def candidate(way: str, sizes: Mapping[str, int]) -> Candidate:
    """The candidate with these sizes; places that are not named stay whole.

    Narrower feed-forward layers alone are the same model whichever way was to follow.
    """
    way = NARROW if set(sizes) == {FFN} else way
    return Candidate(way, tuple((place, sizes[place]) for place in PLACES if place in sizes))


class Way:
    """One way to make a trained model smaller: by itself with narrower feed-forward layers alone.

    Those below raise UserError where it cannot be done.

    Args:
        name: a key of :data:`MEANS`.
        trained: in eval mode, its feed-forward layers whole.
        batches: of fairseq's, with targets: what importance is measured on.
    """

    #: What shrinks attentions by hand, and its option for what it writes.
    command: str

    def __init__(self, name: str, trained: Trained, batches: Sequence[dict[str, Any]], seed: int):
        self.name = name
        self.trained, self.batches, self.seed = without_gates(trained), batches, seed
        #: Sizes that sites have at least, where all sites change once one does.
        self.base: dict[str, int] = {}
        #: The model whose feed-forward layers have so many units; None for all.
        self.narrowed = functools.cache(self._narrow)

    def sizes(self) -> dict[str, list[int]]:
        """What each place that can shrink can shrink to, the largest first."""
        found: dict[str, list[int]] = {
            site: self.site_sizes(site) for site in SITES if self.trained.attentions[site]
        }
        layers = [one for one in self.trained.model.modules() if hasattr(one, "fc1")]
        found[FFN] = _shares(min(layer.fc1.out_features for layer in layers), FFN_SHARES)
        return {place: sizes for place, sizes in found.items() if sizes}

    def make(self, one: Candidate) -> Trained:
        """The candidate's model, in eval mode."""
        sizes = dict(one.sizes)
        units = sizes.pop(FFN, None)
        return self.shrink(units, sizes) if sizes else self.narrowed(units)

    def commands(self, one: Candidate, checkpoint: str, data: str, out: str) -> list[str]:
        """What makes the same model by hand."""
        sizes, lines = dict(one.sizes), []
        units = sizes.pop(FFN, None)
        if units is not None:
            target = "narrow.pt" if sizes else out
            words = ["prune", checkpoint, data, "--ffn-dim", str(units)]
            lines.append([*words, "--out", target])
            checkpoint = target
        if sizes:
            place = [data] if self.command == "prune" else ["--data", data]
            words = [self.command, checkpoint, *place, *self.options(units, sizes)]
            lines.append([*words, "--out", out])
        return [shlex.join(["fairseq-collab", *line]) for line in lines]

    def site_sizes(self, site: Site) -> list[int]:
        """What the attentions of a site can shrink to: nothing unless a way says."""
        return []

    def shrink(self, units: int | None, sizes: Mapping[str, int]) -> Trained:
        """The model with the attentions of these sites shrunk, and ``units`` in each feed-forward
        layer, all of them if it is None."""
        raise NotImplementedError

    def options(self, units: int | None, sizes: Mapping[str, int]) -> list[str]:
        """What :attr:`command` is told to do what :meth:`shrink` does."""
        raise NotImplementedError

    def _narrow(self, units: int | None) -> Trained:
        return self.trained if units is None else surgery.narrowed(self.trained, units)


class Heads(Way):
    """Heads are gone, of each site the least important; importances have length 1 in each layer."""

    command = "prune"

    def __init__(self, name: str, trained: Trained, batches: Sequence[dict[str, Any]], seed: int):
        surgery.check_heads(trained)
        super().__init__(name, trained, batches, seed)
        self._importance = functools.cache(self._measure)

    def site_sizes(self, site: Site) -> list[int]:
        return _shares(sum(self.trained.heads[site]), SHARES)

    def kept(self, units: int | None, sizes: Mapping[str, int]) -> surgery.Kept:
        """The heads that stay."""
        base = self.narrowed(units)
        importance = self._importance(units)
        kept: surgery.Kept = all_heads(base.heads)
        for site in SITES:
            if site in sizes:
                gone = sum(base.heads[site]) - sizes[site]
                kept = without_least(kept, importance, [site], gone)
        return kept

    def shrink(self, units: int | None, sizes: Mapping[str, int]) -> Trained:
        return surgery.pruned(self.narrowed(units), self.kept(units, sizes))

    def options(self, units: int | None, sizes: Mapping[str, int]) -> list[str]:
        kept = self.kept(units, sizes)
        chosen = [
            f"{site}:" + "/".join(",".join(map(str, heads)) or "-" for heads in kept[site])
            for site in SITES
            if site in sizes
        ]
        return ["--keep-heads", *chosen]

    def _measure(self, units: int | None) -> dict[Site, list[list[float]]]:
        importance = Importance(self.narrowed(units).model)
        for batch in self.batches:
            importance.add(batch)
        return importance.per_token()


#: Ways to share: ``fairseq-collab reparametrize --to`` what, with which other options.  Those that
#: take longest come last, when it is known how much time is left.
SHARING: dict[str, tuple[str, dict[str, Any]]] = {
    "grouped-query": ("grouped-query", {}),
    "latent": ("latent", {}),
    "collab": ("collab", {}),
    "collab-values": ("collab", {"value_heads": 1}),
}
#: The command's own choices of what else there is to choose.
USUAL = {
    "calibration": CALIBRATION, "subset": SUBSET, "query_mixing": "own", "value_heads": None,
}  # fmt: skip


class Sharing(Way):
    """Heads share: one of :data:`SHARING`."""

    command = "reparametrize"

    def __init__(self, name: str, trained: Trained, batches: Sequence[dict[str, Any]], seed: int):
        self.to, self.chosen = SHARING[name]
        self.args = Namespace(**{**USUAL, **self.chosen}, to=self.to, seed=seed)
        self.target = TARGETS[self.to](self.args)
        source.check(trained, self.target)
        for one in attentions(trained.model):
            self.target.check(one, trained.path)
        super().__init__(name, trained, batches, seed)
        self.base = {
            site: self._largest(site)
            for site, found in trained.attentions.items()
            if any(self.target.converts(one.module) for one in found)
        }
        self._work = functools.cache(self._start)

    def site_sizes(self, site: Site) -> list[int]:
        modules = [one.module for one in self.trained.attentions[site]]
        return [
            size
            for size in _shares(self._largest(site), SHARES)
            if not any(self.target.out_of_range(module, size) for module in modules)
        ]

    def _largest(self, site: Site) -> int:
        return min(self.target.largest(one.module) for one in self.trained.attentions[site])

    def shrink(self, units: int | None, sizes: Mapping[str, int]) -> Trained:
        work = self._work(units)
        found = work.trained.attentions
        places = {one: sizes[site] for site in SITES if site in sizes for one in found[site]}
        return work.model(places)[0]

    def options(self, units: int | None, sizes: Mapping[str, int]) -> list[str]:
        option = f"--{self.target.size.replace('_', '-')}-in"
        each = [
            word
            for site in SITES
            if self.trained.attentions[site]
            for word in (f"{option}-{site}", str(sizes.get(site, 0)))
        ]
        for name, value in self.chosen.items():
            each += [f"--{name.replace('_', '-')}", str(value)]
        return ["--to", self.to, *each]

    def _start(self, units: int | None) -> Reparametrizer:
        base = self.narrowed(units)
        return Reparametrizer(base, self.args, attentions(base.model))


def ways(
    trained: Trained, batches: Sequence[dict[str, Any]], seed: int
) -> tuple[dict[str, Way], dict[str, str]]:
    """All ways that this model allows, by name; and of the others, why not."""
    found: dict[str, Way] = {}
    refused: dict[str, str] = {}
    kinds: dict[str, type[Way]] = {NARROW: Way, HEADS: Heads, **dict.fromkeys(SHARING, Sharing)}
    for name, kind in kinds.items():
        try:
            found[name] = kind(name, trained, batches, seed)
            # Large models are in memory once, not once a way.
            found[name].narrowed = found[NARROW].narrowed
        except UserError as error:
            refused[name] = error.what
    return found, refused


def _shares(whole: int, shares: Sequence[float]) -> list[int]:
    """Whole numbers at these shares of ``whole``, each once, smaller than it and above 0."""
    found = (round(share * whole) for share in shares)
    return list(dict.fromkeys(size for size in found if 0 < size < whole))
