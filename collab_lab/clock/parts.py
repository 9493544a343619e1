"""Times of the parts of a model in the engine that will run it, measured on this machine.

A *group* is the heads of an attention type, or the feed-forward units of a side, in all layers.
The whole model, the converted model before any cut, and models in which a group is narrower take
turns, and

    change(share) = (seconds of the narrower model - of the uncut one) / seconds of the whole one

at a few shares of the group's width; between them it is linear, and a wider group is never faster.
So flat-then-linear times are found, too.  Changes of several groups add up, and a group's is spread
over its layers by their widths.  The narrower models are the model itself without some heads or
units, or, for another KV cache, random weights: all translations have one length.

Times are stored in the user's cache folder, in one file per machine and version of the engine.
"""

from __future__ import annotations

import hashlib
import math
import os
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import numpy as np
import torch
from scipy.optimize import isotonic_regression

from collab_common import ATTENTION_TYPES
from collab_common.errors import UserError, check_whole
from collab_common.files import read_json, updated, user_cache, write_json
from collab_common.progress import bar, say
from collab_common.provenance import hardware, processor_name
from collab_lab.clock.engines import (
    PACKED,
    Program,
    Work,
    check,
    program,
    settings,
)
from collab_lab.clock.turns import clock, pause, turns
from collab_lab.shrinking.cut import NewHeads
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.engine import engine_of
from collab_lab.shrinking.plan import CACHE_CUTS
from collab_lab.shrinking.retained import all_heads, pruned
from collab_lab.shrinking.shape import PARTS, Kind, Shape, Site, sites_of, width_of
from collab_lab.shrinking.shrink import chosen_kinds
from collab_lab.trained.attentions import Attention, attentions, own_bits, removed_together
from collab_lab.trained.checkpoint import Trained, check_model
from collab_lab.trained.contexts import without_checkpointing
from fairseq_collab.attention.rounding import BITS
from fairseq_collab.models.variants import family_of

#: Seconds that measuring takes at most, unless a single turn of each group takes longer.
BUDGET = 120
#: Turns of each group, and seconds of a translation that needs no warm-up.
MOST_TURNS, LONG = 8, 2.0
#: Seconds in which two models take turns, three at least.
TURNS = 20.0
#: Shares of a group's width, the most telling first.
WIDTH_SHARES = (1 / 8, 1 / 2)
#: Sizes of the heads of another KV cache, as shares of the exact size.
SIZE_SHARES = (1 / 4, 1)
#: The group that is no width.
UNCUT = "uncut"


@dataclass(frozen=True)
class PartTimes:
    """Measured times of a model and of narrower ones: the :class:`.plan.Times` of ``shrink``.

    Attributes:
        work: what was timed.
        seconds: time of the model that was given.
        uncut: time of the converted model before any cut, as a share of ``seconds``.
        totals: for each group (``encoder heads``) its width, and for each attention type with a KV
            cache (``cross cache``) its number of heads, summed over layers.
        changes: for each group, shares of its width, and the time that each adds to ``uncut``.
        caches: for each kind of heads, attention type and bits, shares of the exact size, and the
            time that each adds to ``uncut``.
        sizes: sizes of the model's weights and heads; empty if unknown.
    """

    work: Work
    seconds: float
    uncut: float
    totals: Mapping[str, int]
    changes: Mapping[str, Sequence[tuple[float, float]]]
    caches: Mapping[str, Sequence[tuple[float, float]]]
    sizes: Sequence[str] = ()

    @property
    def engine(self) -> str:
        """Name of the engine, one of :data:`.engine.ENGINES`."""
        return engine_of(self.work.timed_in).name

    def __repr__(self) -> str:
        what = f"{self.work.timed_in}, batch of {self.work.batch}, {self.work.length} tokens"
        least = {group: min(points)[1] for group, points in self.changes.items()}
        groups = ", ".join(f"{group} {change:+.1%}" for group, change in least.items())
        return f"times of parts, {what}: {self.seconds:.3f} s\nat their narrowest: {groups}"

    def check(self, model: Trained) -> None:
        """Raise UserError if the sizes of the model are not those of the model that was timed."""
        if self.sizes and self.sizes != sizes_of(model):
            todo = "time this one: see collab_lab.time_parts"
            raise UserError("were measured of a model of other sizes", "`times`", todo)

    def change(self, site: Site, shape: Shape) -> float:
        """The time that a shape adds to that of the uncut model, as a share of ``seconds``."""
        group, width = group_of(site, self.work.timed_in), width_of(site)
        if group not in self.totals or not width:
            return 0.0
        weight, share = width / self.totals[group], shape.width / width
        added = 0.0
        if group in self.changes:
            added = weight * at(self.changes[group], share)
        elif share != 1:
            raise UserError(f"{group} are cut, and their times were not measured", "`times`")
        if isinstance(site, Attention) and site.type != "encoder":
            weight = shape.width / self.totals[f"{site.type} cache"]
            added += weight * self._of_cache(site, shape)
        return added

    def _of_cache(self, site: Attention, shape: Shape) -> float:
        """The time that a cache adds if all attentions of this type have it in all heads."""
        rounds = engine_of(self.work.timed_in).rounds
        is_changed = rounds and shape.bits != own_bits(site.module)
        if not shape.heads or not (shape.size or is_changed):
            return 0.0
        if shape.kind is None:
            group, share = cache_group(None, site.type, shape.bits), 1.0
        else:
            # 8 bits are unpacked as fast as 4.
            group = cache_group(shape.kind, site.type, min(BITS) if shape.bits else 0)
            share = shape.size / shape.kind.exact(site.module, len(shape.heads))
        if group not in self.caches:
            raise UserError(f"{group} is chosen, and its times were not measured", "`times`")
        return at(self.caches[group], share)


def at(points: Sequence[tuple[float, float]], share: float) -> float:
    """The change at a share of a width: linear between points, and rising with the width."""
    shares, changes = zip(*sorted(points), strict=True)
    return float(np.interp(share, shares, isotonic_regression(changes).x))


def cache_group(kind: Kind | None, type_: str, bits: int) -> str:
    """The name of a KV cache in :attr:`PartTimes.caches`; ``kind`` is None if heads stay."""
    return f"cache of {kind.name if kind else 'unchanged'} {type_} {bits}"


def group_of(site: Site, timed_in: str) -> str:
    """The group that a site belongs to.

    In an engine that wants even heads, both attentions of a decoder layer have the same number of
    heads, and are one group.
    """
    if not isinstance(site, Attention):
        return f"{site.side} units"
    together = engine_of(timed_in).even and site.type == "cross"
    return "decoder heads" if together else f"{site.type} heads"


# ---- narrower models -----------------------------------------------------------------------------


class Narrower(NamedTuple):
    """A model in which one group is changed.

    Attributes:
        group: name of the group, :data:`UNCUT`, or a :func:`cache_group`.
        share: share of the group's width that is left; for a cache, the share of the exact size.
        build: builds the model.
    """

    group: str
    share: float
    build: Callable[[], Trained]

    @property
    def is_cache(self) -> bool:
        """Whether the change is another KV cache."""
        return self.group.startswith("cache")


def narrower(
    trained: Trained, timed_in: str, parts: Sequence[str], kinds: Sequence[str] = ()
) -> Iterator[Narrower]:
    """Models in each of which one group is changed; the most telling changes come first.

    Args:
        kinds: kinds of heads that have another cache.
    """
    # An exported model is the same with fairseq's attention and with this project's.
    family = None if engine_of(timed_in).is_exported else family_of(type(trained.model))
    if family is not None and type(trained.model) in family.stock:
        yield Narrower(UNCUT, 1.0, lambda: pruned(trained, all_heads(trained)))
    groups = groups_of(trained, timed_in)
    heads = {group: sites for group, sites in groups.items() if group.endswith("heads")}
    of_heads, of_units = (
        [group for group in groups if (group in heads) == is_heads and part in parts]
        for is_heads, part in ((True, "heads"), (False, "units"))
    )
    caches = [*_caches(trained, timed_in, kinds)] if "cache" in parts else []
    for share in WIDTH_SHARES:
        for group in of_heads + of_units:
            counts = _counts(groups[group], share, engine_of(timed_in).even)
            real = sum(counts) / sum(map(width_of, groups[group]))
            if real < 1:  # else nothing can be removed
                yield Narrower(group, real, partial(_narrowed, trained, groups[group], counts))
        yield from caches
        caches = []
    for group in of_heads:
        if not engine_of(timed_in).even and group != "cross heads":
            none = [0] * len(groups[group])
            yield Narrower(group, 0.0, partial(_narrowed, trained, groups[group], none))


def groups_of(trained: Trained, timed_in: str) -> dict[str, list[Site]]:
    """The sites of each group."""
    groups: dict[str, list[Site]] = {}
    for site in sites_of(trained):
        if width_of(site):
            groups.setdefault(group_of(site, timed_in), []).append(site)
    return groups


def _counts(sites: Sequence[Site], share: float, even: bool) -> list[int]:
    """The number of heads or units that stay in each site.

    Heads that must be removed together stay together.

    Args:
        even: whether all sites must keep the same number of heads.
    """
    steps = [removed_together(s.module) if isinstance(s, Attention) else 1 for s in sites]
    if even:
        steps = [math.lcm(*steps)] * len(steps)
    every = zip(sites, steps, strict=True)
    return [
        min(width_of(site), step * max(1, round(share * width_of(site) / step)))
        for site, step in every
    ]


def _narrowed(trained: Trained, sites: Sequence[Site], counts: Sequence[int]) -> Trained:
    """Return the model with only the first heads or units of some sites."""
    retained: Any = {type_: [*of] for type_, of in all_heads(trained).items()}
    units = {}
    for site, number in zip(sites, counts, strict=True):
        if isinstance(site, Attention):
            retained[site.type][site.layer] = list(range(number))
        else:
            units[site] = list(range(number))
    return pruned(trained, retained, units)


def _caches(trained: Trained, timed_in: str, kinds: Sequence[str]) -> Iterator[Narrower]:
    """Models with another KV cache of an attention type, rounded if the engine rounds any."""
    numbers = BITS if engine_of(timed_in).rounds else ()
    # A kind that a model has no counterpart in has no plan either, which then says why.
    possible = [cut for cut in _new_heads(kinds) if not any(cut.refuses(trained))]
    for type_ in ATTENTION_TYPES[1:]:
        layers = [a for a in trained.attentions[type_] if a.module.num_heads]
        if not layers:
            continue
        for number in (0, *numbers) if numbers else ():
            if any(own_bits(a.module) != number for a in layers):
                build = partial(_rounded, trained, dict.fromkeys(layers, number))
                yield Narrower(cache_group(None, type_, number), 1.0, build)
        for cut in possible:
            for share, sizes in _sizes_by_share(layers, cut).items():
                for number in (0, min(numbers)) if numbers else (0,):
                    bits = dict.fromkeys(layers, number)
                    build = partial(_resized, trained, cut.kind, sizes, bits)
                    yield Narrower(cache_group(cut.kind, type_, number), share, build)


def _new_heads(kinds: Sequence[str]) -> list[NewHeads]:
    """The cuts that make heads of these kinds."""
    cuts = (cut() for kind in kinds for cut in CACHE_CUTS.get(kind, ())[:1])
    return [cut for cut in cuts if isinstance(cut, NewHeads)]


def _sizes_by_share(
    layers: Sequence[Attention], cut: NewHeads
) -> dict[float, dict[Attention, int]]:
    """Sizes of attentions next to :data:`SIZE_SHARES`, by their share of the exact ones."""
    exact, found = {a: cut.exact_size(a.module) for a in layers}, {}
    for share in SIZE_SHARES:
        wanted = {a: share * size for a, size in exact.items()}
        sizes = {a: _next_to(size, cut.grid(a.module)) for a, size in wanted.items()}
        found[sum(sizes.values()) / sum(exact.values())] = sizes
    return found


def _next_to(wanted: float, sizes: Sequence[int]) -> int:
    return min(sizes, key=lambda size: abs(size - wanted))


def _rounded(trained: Trained, bits: Mapping[Attention, int]) -> Trained:
    draft = Draft(trained)
    draft.use_own_heads()
    for attention, number in bits.items():
        draft.round(attention, number)
    return draft.build()


def _resized(
    trained: Trained,
    kind: Kind,
    sizes: Mapping[Attention, int],
    bits: Mapping[Attention, int],
) -> Trained:
    """Return the model with other heads; weights are random, since time does not depend on them."""
    draft = Draft(trained)
    for attention, size in sizes.items():
        draft.convert_heads(attention, kind, size, {})
    for attention in draft.bits:
        draft.round(attention, bits.get(attention, 0))
    result = trained.with_model(trained.model, draft.options())
    with without_checkpointing(result.cfg.model):
        model = trained.task.build_model(result.cfg.model)
    return result.with_model(model.eval().to(trained.device))


# ---- measuring -----------------------------------------------------------------------------------


def time_parts(
    model: Trained,
    timed_in: str,
    *,
    batch: int = 1,
    length: int = 30,
    parts: Sequence[str] = ("heads", "units"),
    kinds: Sequence[str] | None = None,
    folder: Path | None = None,
) -> PartTimes:
    """Time a model and its parts; this takes about two minutes, once per machine.

    Args:
        timed_in: engine and type of its numbers, of :data:`.engine.TIMED_IN`: ``ct2-int8``.
        batch: number of sentences that are translated together, with beam 5.
        length: tokens of a source and of a translation.
        parts: what is to be cut: heads, units, cache.
        kinds: of heads for a smaller cache; default: those of ``shrink``.
        folder: for files of times; default: the user's cache folder.

    Raises:
        UserError: the engine is not installed, or the model has too few positions for the length.
    """
    check_model(model)
    check_whole(batch=batch, length=length)
    work = Work(timed_in, batch, length)
    check(model, work)
    if unknown := sorted({*parts} - {*PARTS}):
        raise UserError(f"{unknown[0]!r} must be one of {', '.join(PARTS)}", "`parts`")
    kinds = chosen_kinds(kinds, parts, engine_of(timed_in).name)
    if kinds is None:
        kinds = engine_of(timed_in).kinds if "cache" in parts else ()
    path = (folder or user_cache()) / f"times-{_machine(timed_in)}.json"
    content = read_json(path) if path.exists() else {**settings(), "tables": {}}
    key = key_of(model, work, (*parts, *kinds))
    if key in content["tables"]:
        table = content["tables"][key]
        say(f"times of parts: {path}")
    else:
        table = _measured(model, work, parts, kinds)
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with updated(path, content, write_json) as content:  # another process may add some
                content["tables"][key] = table
        except OSError as error:
            say(f"warning: these times are not kept for later: {error}; set XDG_CACHE_HOME")
    totals: dict[str, int] = {}
    for site in sites_of(model):
        group = group_of(site, timed_in)
        totals[group] = totals.get(group, 0) + width_of(site)
        if isinstance(site, Attention) and site.type != "encoder":
            cached = f"{site.type} cache"
            totals[cached] = totals.get(cached, 0) + width_of(site)
    # A narrower group is not slower: what says so is noise.
    changes = {p: [(s, min(c, 0.0)) for s, c in of] for p, of in table["changes"].items()}
    caches = {group: [(share, change) for share, change in of]
              for group, of in table["caches"].items()}  # fmt: skip
    seconds, uncut = table["seconds"], table["uncut"]
    return PartTimes(work, seconds, uncut, totals, changes, caches, sizes_of(model))


def _machine(timed_in: str) -> str:
    """The machine, its threads, the engine and its version, in a name of a file."""
    now = settings()
    runtime = next(iter(engine_of(timed_in).packages), "")
    number = now[runtime] if runtime else now["versions"]["fairseq-collab"]
    names = processor_name(), f"{now['threads']} threads", timed_in, number, now[PACKED] or ""
    return re.sub(r"[^\w.]+", "-", " ".join(names)).strip("-")


def key_of(trained: Trained, work: Work, changed: Sequence[str]) -> str:
    """A hash of all that seconds depend on, but for what :func:`_machine` says."""
    where = hardware(cpu=trained.device.type == "cpu")
    how = [*sorted(changed), trained.arch, where]
    if engine_of(work.timed_in).name == "fairseq":  # whose steps torch computes
        how += [torch.__version__, *(f"{k}={v}" for k, v in sorted(os.environ.items())
                                     if k.startswith("FAIRSEQ_COLLAB_"))]  # fmt: skip
    text = "\n".join([*sizes_of(trained), repr(work), *how])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sizes_of(trained: Trained) -> list[str]:
    """The sizes of all weights, and the heads and bits of all attentions."""
    shapes = [f"{n} {tuple(w.shape)}" for n, w in sorted(trained.model.state_dict().items())]
    heads = [f"{a} {a.module.num_heads} {own_bits(a.module)}" for a in attentions(trained.model)]
    return [*shapes, *heads]


def _measured(
    trained: Trained, work: Work, parts: Sequence[str], kinds: Sequence[str]
) -> dict[str, Any]:
    """Times of a model and its parts, for a file."""
    begin = clock()
    whole = program(trained, work.timed_in, work.length)
    loading = clock() - begin
    _seconds(whole, work)  # the first allocates
    seconds = [_seconds(whole, work)]
    every = [*narrower(trained, work.timed_in, parts, kinds)]
    if not every:
        listed = (
            f"{cut.kind.heads_name}: {'; '.join(cut.refuses(trained))}" for cut in _new_heads(kinds)
        )
        reasons = "; ".join(listed) or f"{work.timed_in} rounds no cache"
        raise UserError(
            f"nothing that may be cut ({', '.join(parts)}) can be", trained.path, reasons
        )
    models, number = _affordable(every, loading, seconds[0])
    ratios = dict[Narrower, float]()
    for changed in bar("times of parts", models):
        run = program(changed.build(), work.timed_in, work.length)
        if seconds[0] < LONG:
            _seconds(run, work)
        own = []
        for _ in range(number):
            own.append(_seconds(run, work))
            seconds.append(_seconds(whole, work))
        around = pairwise(seconds[-number - 1 :])
        pairs = zip(own, around, strict=True)
        ratios[changed] = median(2 * a / (before + after) for a, (before, after) in pairs)
    uncut = next((ratio for model, ratio in ratios.items() if model.group == UNCUT), 1.0)
    table: dict[str, Any] = {"seconds": median(seconds), "uncut": uncut, "turns": number}
    table |= {"caches": {}, "changes": {}}
    for model, ratio in ratios.items():
        point = model.share, ratio - uncut
        if model.is_cache:
            table["caches"].setdefault(model.group, []).append(point)
        elif model.group != UNCUT:
            table["changes"].setdefault(model.group, [(1.0, 0.0)]).append(point)
    return table


def _affordable(
    models: Sequence[Narrower], loading: float, seconds: float
) -> tuple[Sequence[Narrower], int]:
    """The models that are timed within :data:`BUDGET`, one of each group at least, and turns."""
    least = len({(model.group, model.share if model.is_cache else None) for model in models})
    before = loading + (seconds if seconds < LONG else 0)
    number = max(least, min(len(models), int(BUDGET / (before + 2 * seconds))))
    each = int((BUDGET / number - before) / (2 * seconds))
    return models[:number], min(MOST_TURNS, max(1, each))


def _seconds(run: Program, work: Work) -> float:
    time.sleep(pause())
    begin = clock()
    run(work.batch)
    return clock() - begin


# ---- a result next to its source -----------------------------------------------------------------


def in_turns(
    before: Trained, after: Trained, work: Work, least: float = TURNS
) -> list[dict[str, float]]:
    """Seconds of two models, in turns: at least three, then turns for ``least`` seconds."""
    runs = {name: program(model, work.timed_in, work.length)
            for name, model in (("before", before), ("after", after))}  # fmt: skip
    for run in runs.values():
        _seconds(run, work)
    begin, found = clock(), list[dict[str, float]]()
    for turn in turns(runs, [work.batch], pause()):
        found.append(turn)
        if len(found) >= 3 and (clock() - begin > least or len(found) >= 50):
            break
    return found
