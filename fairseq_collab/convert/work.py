"""The work of ``fairseq-collab reparametrize``, of the whole model: find the sizes that its options
ask for, or that keep within a budget; calibrate, convert.
"""

from __future__ import annotations

import functools
import time
from argparse import Namespace
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from collab_common.errors import UserError
from collab_common.progress import bar, say
from fairseq_collab.convert import calibrate, convert
from fairseq_collab.convert.collaborative import Collaborative
from fairseq_collab.convert.grouped import GroupedQuery
from fairseq_collab.convert.latent import Latent
from fairseq_collab.convert.target import Converted, Target
from fairseq_collab.metrics.translate import bleu
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.models.site_options import named_sites, one_a_layer
from fairseq_collab.trained.attentions import Attention, attentions
from fairseq_collab.trained.opener import Trained

#: What heads can become, by the values of ``--to``.
TARGETS: dict[str, type[Target]] = {
    "collab": Collaborative,
    "grouped-query": GroupedQuery,
    "latent": Latent,
}


# ---- sizes ---------------------------------------------------------------------------------------


def chosen_sizes(args: Namespace, trained: Trained, target: Target) -> dict[Attention, int]:
    """The size of every attention as the options give them, without those left alone.

    Empty where the options give a budget instead.

    Raises:
        UserError: one is out of range, or fits no layer.
    """
    option, whole = _option(target), getattr(args, target.size)
    lists = {
        site: _listed(site, args, target, len(found)) for site, found in trained.attentions.items()
    }
    if whole is None and not any(lists.values()):
        return {}
    places, sizes = chosen_places(args, trained), {}
    sites = {place.site for place in places}
    for site, listed in lists.items():
        if site not in sites and any(listed or ()):
            what = f"{site} attention is not among --sites"
            raise UserError(what, f"{option}-in-{site}", "leave one of the two out")
    for place in places:
        listed = lists[place.site]
        given = listed[place.layer] if listed else whole
        if given is None:
            todo = f"give {option}-in-{place.site} or {option}"
            raise UserError(f"no {target.what} for {place}", trained.path, todo)
        if listed and given == 0:
            continue
        if within := target.out_of_range(place.module, given):
            what = f"{place}: {target.what} {given} is out of range"
            raise UserError(what, trained.path, within)
        sizes[place] = given
    if not sizes:
        raise UserError("no attention is left to re-parametrise", trained.path, "choose some")
    for place in attentions(trained.model):
        if place in sizes or target.converts(place.module):
            continue
        size = place.module.q_proj.out_features
        if size != place.module.embed_dim:  # the only size that fits there
            size //= place.module.num_heads
            what = f"{place}: heads of size {size} cannot be left as they are"
            raise UserError(what, trained.path, f"give a {target.what} for them, too")
    return sizes


def chosen_places(args: Namespace, trained: Trained) -> list[Attention]:
    """The attentions of the chosen sites."""
    try:
        sites = named_sites("--sites", args.sites, or_none=True)
    except ValueError as error:
        raise UserError(str(error)) from error
    found = trained.attentions
    places = [place for site in sites for place in found[site]]
    if not places:
        has = f"it has {', '.join(site for site in SITES if found[site])}"
        raise UserError("the model has no such attention", f"--sites {args.sites}", has)
    return places


def _option(target: Target) -> str:
    return f"--{target.size.replace('_', '-')}"


def _listed(site: Site, args: Namespace, target: Target, layers: int) -> list[int] | None:
    option, text = f"{_option(target)}-in-{site}", getattr(args, f"{target.size}_in_{site}")
    if text is not None and not layers:
        raise UserError("the model has no such attention", option, "leave the option out")
    try:
        return one_a_layer(option, text, layers, least=0)
    except ValueError as error:
        raise UserError(str(error)) from error


# ---- work ----------------------------------------------------------------------------------------


def smallest(largest: int, good: Callable[[int], bool]) -> int:
    """The smallest ``K`` in ``1 .. largest`` with ``good(K)``, if goodness grows with ``K``.

    ``largest`` is taken to be good (``K = H h`` is exact) and never asked for.  Where goodness does
    not quite grow with ``K``, the result is still good, and ``K - 1`` was not, or is 0.
    """
    return 1 + bisect_left(range(1, largest), True, key=good)


class Reparametrizer:
    """Converts attentions of one model, with the options of the command."""

    def __init__(self, trained: Trained, args: Namespace, places: Sequence[Attention]):
        self.trained, self.args = trained, args
        self.target = target = TARGETS[args.to](args)
        self.places = [*places]
        for place in places:
            target.check(place, trained.path)
        #: Sizes of what is converted although it stays as it is.
        self.kept = {
            place: target.kept(place.module)
            for place in attentions(trained.model)
            if target.converts(place.module)
        }
        places = [*dict.fromkeys([*places, *self.kept])]
        self.inputs: list[dict[str, Any]] = []
        moments: Mapping[Attention, calibrate.Moments] = {}
        if args.calibration:
            self.inputs = calibrate.sentences(trained, args.subset, args.calibration)
            moments = calibrate.moments(trained, self.inputs, places)
        self.parts = {place: target.part(place.module, moments.get(place)) for place in places}
        # Whoever tries many sizes meets the same ones again.
        self.converted = functools.cache(self._convert)

    def model(self, sizes: Mapping[Attention, int]) -> tuple[Trained, list[dict[str, Any]]]:
        """The result, and how well each attention was converted: see :meth:`.Target.convert`."""
        weights, fits, target = {}, [], self.target
        for place, size in bar("attentions", list(sizes.items())):
            began = time.perf_counter()
            weights[place], fit = self.converted(place, size)
            seconds = round(time.perf_counter() - began, 3)
            here = {"site": place.site, "layer": place.layer, target.size: size}
            fits.append({**here, **fit, "seconds": seconds})
        for place, size in self.kept.items():
            if place not in sizes:
                weights[place], _ = self.converted(place, size)
        return convert.with_heads(self.trained, target, weights, sizes), fits

    def _convert(self, place: Attention, size: int) -> Converted:
        return self.target.convert(place.module, self.parts[place], size)

    def within_error(self, budget: float) -> dict[Attention, int]:
        """The smallest size of each attention whose logit error is at most ``budget``.

        Raises:
            UserError: the largest of one, where it is not exact, is off by more.
        """

        def good(place: Attention, size: int) -> bool:
            _, fit = self.converted(place, size)
            error = fit["logit_error"]
            return error is not None and error <= budget

        sizes = {}
        for place in bar("budget", self.places):
            most = self.target.largest(place.module)
            sizes[place] = smallest(most, partial(good, place))
            if sizes[place] == most and self.args.exportable and not good(place, most):
                error = self.converted(place, most)[1]["logit_error"]
                what = f"logits of {place} are off by {error:.4f} even with {self.target.what}"
                todo = "allow more, or leave --exportable out"
                raise UserError(f"{what} {most}", f"--max-logit-error {budget:g}", todo)
        return sizes

    def within_bleu(self, drop: float) -> dict[Attention, int]:
        """One size for all attentions, the smallest that loses at most ``drop`` BLEU.

        Raises:
            UserError: the largest, where it is not exact, loses more.
        """
        task, subset = self.trained.task, self.args.bleu_subset
        translate = partial(bleu, task=task, subset=subset)
        whole = translate(self.trained.model)
        largest = {place: self.target.largest(place.module) for place in self.places}

        def each(size: int) -> dict[Attention, int]:
            return {place: min(size, most) for place, most in largest.items()}

        def lost(size: int) -> float:
            found = translate(self.model(each(size))[0].model)
            say(f"{self.target.what} {size}: {found:.2f} BLEU, {found - whole:+.2f}")
            return whole - found

        say(f"{self.trained.path}: {whole:.2f} BLEU on {subset}")
        most = max(largest.values())
        size = smallest(most, lambda size: lost(size) <= drop)
        inexact = self.args.value_heads is not None or self.args.exportable
        if size == most and inexact and (least := lost(most)) > drop:
            what = f"{least:.2f} BLEU are lost even with {self.target.what} {most}"
            todo = "allow more, or leave --value-heads and --exportable out"
            raise UserError(what, f"--max-bleu-drop {drop:g}", todo)
        return each(size)
