"""The work of ``fairseq-collab reparametrize``: sizes from options, calibration, conversion."""

from __future__ import annotations

import functools
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from typing import Any

from collab_common.errors import UserError
from collab_common.progress import bar
from fairseq_collab.convert import calibrate
from fairseq_collab.convert.base import Converted, Part, Target
from fairseq_collab.convert.kinds import TARGETS
from fairseq_collab.convert.source import with_heads
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.models.options import named_sites, one_a_layer
from fairseq_collab.trained.attentions import Attention, attentions
from fairseq_collab.trained.opener import Trained

# ---- sizes ---------------------------------------------------------------------------------------


def chosen_sizes(args: Namespace, trained: Trained, target: Target) -> dict[Attention, int]:
    """The size of every attention as the options give them, without those left alone.

    Raises:
        UserError: one is out of range, or fits no layer.
    """
    option, whole = _option(target), getattr(args, target.size)
    lists = {
        site: _listed(site, args, target, len(found)) for site, found in trained.attentions.items()
    }
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


class Reparametrizer:
    """Converts attentions of one model, with the options of the command."""

    def __init__(self, trained: Trained, args: Namespace, places: Sequence[Attention]):
        self.trained = trained
        self.target = target = TARGETS[args.to](args)
        for place in places:
            target.check(place, trained.path)
        #: Sizes of the attentions that are converted although they keep their size.
        self.kept = {
            place: target.kept(place.module)
            for place in attentions(trained.model)
            if target.converts(place.module)
        }
        places = [*dict.fromkeys([*places, *self.kept])]
        moments: Mapping[Attention, calibrate.Moments] = {}
        if args.calibration:
            batches = calibrate.batches(trained, args.subset, args.calibration)
            inputs = [batch["net_input"] for batch in batches]
            moments = calibrate.moments(trained, inputs, places)
        self.parts = {place: Part(place.module, moments.get(place)) for place in places}
        # A caller that tries many sizes repeats some.
        self.converted = functools.cache(self._convert)

    def model(self, sizes: Mapping[Attention, int]) -> tuple[Trained, list[dict[str, Any]]]:
        """The converted model, and the errors of each attention: see :meth:`.Target.convert`."""
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
        return with_heads(self.trained, target, weights, sizes), fits

    def _convert(self, place: Attention, size: int) -> Converted:
        return self.target.convert(self.parts[place], size)
