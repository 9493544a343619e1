"""What the options of ``fairseq-collab reparametrize`` ask for: which attentions of a model are
converted, and to what size.
"""

from __future__ import annotations

from argparse import Namespace

from collab_common.errors import UserError
from fairseq_collab.checkpoints.attentions import Attention, attentions
from fairseq_collab.checkpoints.opener import Trained
from fairseq_collab.checkpoints.reparametrize.target import Target
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.models.site_options import named_sites, one_a_layer


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
