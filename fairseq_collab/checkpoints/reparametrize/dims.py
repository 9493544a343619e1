"""Which attentions become collaborative, and with how many dimensions: what the options say."""

from __future__ import annotations

from argparse import Namespace

from collab_common.errors import UserError
from fairseq_collab.checkpoints.reparametrize.source import Place, Source
from fairseq_collab.models.layers import SITES, Site
from fairseq_collab.models.site_options import named_sites, one_a_layer


def chosen_dims(args: Namespace, found: Source) -> dict[Place, int]:
    """The key dimension of every attention as the options give them, without those left alone.

    Empty where the options give a budget instead.

    Raises:
        UserError: one is out of range, or fits no layer.
    """
    lists = {site: _listed(site, args, found) for site in SITES}
    if args.key_dim is None and not any(lists.values()):
        return {}
    dims = {}
    for place in chosen_places(args, found):
        listed = lists[place.site]
        given = listed[place.layer] if listed else args.key_dim
        if given is None:
            todo = f"give --key-dim-in-{place.site} or --key-dim"
            raise UserError(f"no key dimension for {place}", found.path, todo)
        if listed and given == 0:
            continue
        check_range(place, given, found)
        dims[place] = given
    if not dims:
        raise UserError("no attention is left to re-parametrise", found.path, "choose some")
    check_rest(dims, found)
    return dims


def chosen_places(args: Namespace, found: Source) -> list[Place]:
    """The attentions of the chosen sites.

    Raises:
        UserError: there are none, or a site is unknown.
    """
    try:
        sites = named_sites("--sites", args.sites, or_none=True)
    except ValueError as error:
        raise UserError(str(error)) from error
    places = [place for place in found.attentions if place.site in sites]
    if not places:
        has = ", ".join(site for site in SITES if any(p.site == site for p in found.attentions))
        raise UserError("the model has no such attention", f"--sites {args.sites}", f"it has {has}")
    return places


def check_range(place: Place, key_dim: int, found: Source) -> None:
    """``1 <= K <= H h``: more dimensions than all heads have would buy nothing.

    Raises:
        UserError: it is not.
    """
    largest = found.attentions[place].q_proj.out_features
    if not 1 <= key_dim <= largest:
        raise UserError(
            f"{place}: key dimension {key_dim} is out of range",
            found.path,
            f"give one from 1 to {largest}, which is exact",
        )


def check_rest(dims: dict[Place, int], found: Source) -> None:
    """Heads that are left as they are must have the size ``d/H``, the only one that fits there.

    Raises:
        UserError: names those that have another.
    """
    for place, module in found.attentions.items():
        if place not in dims and module.q_proj.out_features != module.embed_dim:
            raise UserError(
                f"{place}: heads of size {module.q_proj.out_features // module.num_heads} cannot "
                "be left as they are",
                found.path,
                "give a key dimension for them, too",
            )


def _listed(site: Site, args: Namespace, found: Source) -> list[int] | None:
    option, text = f"--key-dim-in-{site}", getattr(args, f"key_dim_in_{site}")
    layers = sum(place.site == site for place in found.attentions)
    if text is not None and not layers:
        raise UserError("the model has no such attention", option, "leave the option out")
    try:
        return one_a_layer(option, text, layers, least=0)
    except ValueError as error:
        raise UserError(str(error)) from error
