"""Seconds of a model's parts, and plans by them; the clock of most tests counts weights."""

from __future__ import annotations

import json
import re
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import toy_checkpoints
from parity.test_prune_parity import trained as in_memory
from refusals import refusing, wrong_usage
from toy_checkpoints import COPY
from toy_language_models import language_model

from collab_lab import open_model, shrink, time_parts
from collab_lab.cli import shrink as command
from collab_lab.cli.main import main
from collab_lab.clock import engines, parts
from collab_lab.clock.engines import Work, check, program, random_sources
from collab_lab.clock.parts import PartTimes, at
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.cuts.units import Units
from collab_lab.shrinking.engine import ENGINES, TIMED_IN
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.plan import CACHE_CUTS
from collab_lab.shrinking.shape import GROUPS, Shape, as_it_is
from collab_lab.trained.attentions import attentions, groups_of_heads
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import feed_forwards
from fairseq_collab.attention import CollaborativeAttention

OURS = "transformer_headsize_n"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    path = toy_checkpoints.write(tmp_path_factory.mktemp("times") / "c.pt", OURS)
    return open_model(path, toy_checkpoints.COPY)


@pytest.fixture(scope="module")
def found(model: Trained) -> Evidence:
    return Evidence.of(model, sentences=20)


def test_every_engine_can_be_asked_for_and_timed() -> None:
    """One table has them: the choices of options, and what writes and loads their folders."""
    choices = {action.dest: action.choices for action in command.build_parser()._actions}
    assert choices["engine"] == tuple(ENGINES)
    assert choices["time_in"] == tuple(TIMED_IN)
    exported = {name for name, engine in ENGINES.items() if engine.is_exported}
    assert exported == {*engines.WRITERS} == {*engines.LOADERS}
    known = [Heads, Units, Bits, *(cut for cuts in CACHE_CUTS.values() for cut in cuts)]
    assert all({*cut.engines} <= {*ENGINES} for cut in known)
    for engine in ENGINES.values():
        assert all(engine.name in cut.engines for kind in engine.kinds for cut in CACHE_CUTS[kind])


def seconds(model: Trained, _: Any = None) -> float:
    """Of a machine that takes a fixed time for each layer, head, unit and cached number."""
    total = 1.0
    for attention in attentions(model.model):
        module = attention.module
        of_cache = 0.01 * (getattr(module, "cache_bits", 0) > 0)
        of_cache += 0.002 * getattr(module, "latent_dim", 0)
        if isinstance(module, CollaborativeAttention):
            of_cache += 0.001 * module.key_dim
        total -= 0.004 * (module.num_heads - groups_of_heads(module))
        total += 0.01 * module.num_heads + of_cache * module.num_heads / 4
    return total + sum(0.002 * block.width for block in feed_forwards(model.model))


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The folder of tables of a clock that counts."""
    monkeypatch.setattr(parts, "program", lambda trained, engine, length: trained)
    monkeypatch.setattr(parts, "_seconds", seconds)
    return tmp_path


def test_times_between_those_measured() -> None:
    """Flat, then linear; a wider part is never faster, whatever noise says."""
    points = [(1.0, 0.0), (0.5, -0.4), (0.125, -0.4)]
    assert at(points, 0.3) == pytest.approx(-0.4)
    assert at(points, 0.75) == pytest.approx(-0.2)
    noisy = [(1.0, 0.0), (0.5, -0.1), (0.25, -0.05)]
    changes = [at(noisy, share / 8) for share in range(9)]
    assert changes == sorted(changes)


def test_a_block_without_units_takes_no_time(tmp_path: Path) -> None:
    own = toy_checkpoints.write(tmp_path / "c.pt", OURS, ffn_dims_in_encoder="0,24")
    trained = open_model(own, COPY)
    blocks = feed_forwards(trained.model)
    assert parts.groups_of(trained, "fairseq")["encoder units"] == blocks[1:2]
    units = {"encoder units": [(0.5, -0.2), (1.0, 0.0)]}
    times = PartTimes(Work("fairseq", 1, 30), 1.0, 1.0, {"encoder units": 24}, units, {})
    assert times.change(blocks[0], as_it_is(blocks[0])) == 0
    assert times.change(blocks[1], Shape(units=(*range(12),))) == pytest.approx(-0.2)


def test_changes_are_those_of_our_own_heads(
    tmp_path: Path, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq's attention takes 10 s, ours 12 s, and with fewer heads or units 9 s."""
    stock = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    widths = [block.width for block in feed_forwards(stock.model)]

    def invented(model: Trained, _: Any) -> float:
        if model.arch == "transformer":
            return 10.0
        is_whole = widths == [block.width for block in feed_forwards(model.model)]
        return 12.0 if is_whole and model.heads == stock.heads else 9.0

    monkeypatch.setattr(parts, "_seconds", invented)
    times = time_parts(stock, "fairseq", folder=counted)
    assert (times.seconds, times.uncut) == (10, 1.2)
    for of_part in times.changes.values():
        narrowed = [change for share, change in of_part if share < 1]
        assert narrowed == pytest.approx([0.9 - 1.2] * len(narrowed))


def test_a_narrower_part_is_not_slower(
    model: Trained, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What says so is noise, which no plan is to pay for."""
    monkeypatch.setattr(parts, "_seconds", lambda model, _: 10 - seconds(model))
    times = time_parts(model, "fairseq", folder=counted)
    changes = [change for of_part in times.changes.values() for _, change in of_part]
    assert changes == [0] * len(changes)
    assert len(changes) > len(times.changes)


def test_seconds_of_a_cache_of_some_heads(model: Trained) -> None:
    """By how many of all heads stay, and by their size as a share of what these need."""
    part = parts.cache_group(GROUPS, "cross", 0)
    totals = {"cross heads": 8, "cross cache": 8}
    of_sizes = [(0.25, -0.4), (0.5, -0.3), (1.0, 0.0)]
    times = PartTimes(
        Work("fairseq", 1, 30), 1.0, 1.0, totals, {"cross heads": [(1.0, 0.0)]}, {part: of_sizes}
    )
    cross = model.attentions["cross"][0]
    shape = Shape((0, 1), kind=GROUPS, size=1)  # one key for two heads: half of the full size
    assert times.change(cross, shape) == pytest.approx(2 / 8 * -0.3)
    shape = Shape((0, 1, 2, 3), kind=GROUPS, size=1)
    assert times.change(cross, shape) == pytest.approx(4 / 8 * -0.4)


def test_seconds_of_a_cache_are_those_of_a_change_of_its_bits(tmp_path: Path) -> None:
    """Of a model that rounds already: its own bits take no more time, numbers as they are do."""
    path = toy_checkpoints.write(tmp_path / "c.pt", OURS, cache_bits=8)
    cross = open_model(path, toy_checkpoints.COPY).attentions["cross"][0]
    caches = {
        parts.cache_group(None, "cross", bits): [(1.0, x)] for bits, x in ((0, 0.3), (4, 0.1))
    }
    totals = {"cross heads": 8, "cross cache": 8}
    times = PartTimes(Work("fairseq", 1, 30), 1.0, 1.0, totals, {}, caches)
    for bits, expected in ((8, 0.0), (0, 4 / 8 * 0.3), (4, 4 / 8 * 0.1)):
        assert times.change(cross, replace(as_it_is(cross), bits=bits)) == pytest.approx(expected)


def test_seconds_of_a_part_are_those_of_its_sites(model: Trained) -> None:
    """By their widths; what was not measured has no seconds, and is told."""
    block = feed_forwards(model.model)[0]
    totals = {"encoder units": 3 * block.width, "cross heads": 8, "cross cache": 8}
    eight, kept = (parts.cache_group(None, "cross", bits) for bits in (8, 0))
    changes = {
        "encoder units": [(1.0, 0.0), (0.5, -0.3)],
        "cross heads": [(1.0, 0.0), (0.25, -0.4)],
    }
    caches = {eight: [(1.0, 0.05)], kept: [(1.0, 9.0)]}
    times = PartTimes(Work("fairseq", 1, 30), 1.0, 1.0, totals, changes, caches)
    half = Shape(units=tuple(range(block.width // 2)))
    assert times.change(block, half) == pytest.approx(-0.3 / 3)
    encoder, cross = model.attentions["encoder"][0], model.attentions["cross"][0]
    assert times.change(encoder, Shape(heads=(0,))) == 0  # not of what is timed
    assert times.change(cross, Shape(heads=(2,))) == pytest.approx(4 / 8 * -0.4)
    rounded = Shape(heads=(2,), bits=8)  # a cache of one of eight heads
    assert times.change(cross, rounded) == pytest.approx(4 / 8 * -0.4 + 1 / 8 * 0.05)
    none = times.change(cross, Shape(bits=8))  # without heads nothing is cached
    assert none == pytest.approx(4 / 8 * -0.4)
    with refusing("not measured"):
        times.change(cross, Shape(heads=(2,), bits=4))
    with refusing("not measured"):
        lacking = PartTimes(times.work, 1.0, 1.0, totals, {}, caches)
        lacking.change(cross, Shape(heads=(0, 1)))
    assert "encoder units -30.0%, cross heads -40.0%" in repr(times)
    in_ct2 = PartTimes(Work("ct2-int8", 1, 30), 1.0, 1.0, {"decoder heads": 16, "cross cache": 8},
                       {"decoder heads": [(1.0, 0.0), (0.25, -0.4)]}, {})  # fmt: skip
    assert in_ct2.change(cross, rounded) == pytest.approx(4 / 16 * -0.4)  # it rounds no cache


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer_grouped_query", {"key_value_heads": 1}),
        ("transformer_collab", {"value_heads": 1}),
        (
            "transformer_grouped_query",
            {"key_value_heads": 2, "heads_in_encoder": "4,2", "head_size": 4},
        ),
    ],
)
def test_heads_that_share_are_cut_as_plans_cut_them(arch: str, options: dict[str, Any]) -> None:
    """Heads of one group go one by one; layers with other numbers have their own."""
    shared = in_memory(arch, separate=False, **options)
    found = [*parts.narrower(shared, "fairseq", ("heads",))]
    heads = {"encoder heads", "decoder heads", "cross heads"}
    assert {one.group for one in found} >= heads
    for one in found:
        assert one.group not in heads or one.share < 1
        assert one.build().heads


def test_what_is_timed(model: Trained) -> None:
    """An eighth and a half of each part, no heads at all, and other caches."""
    widths = {"encoder units": 0, "decoder units": 0}
    for block in feed_forwards(model.model):
        widths[f"{block.side} units"] += block.width
    heads = ["encoder heads", "decoder heads", "cross heads"]
    expected = {(part, share) for part in heads for share in (0.25, 0.5)}  # of four in each layer
    units = {
        (part, 2 * round(share * width / 2) / width)
        for part, width in widths.items()
        for share in (1 / 8, 1 / 2)
    }
    for engine in ("fairseq", "onnx-int8"):
        found = [*parts.narrower(model, engine, ("heads", "units"))]
        none = {("encoder heads", 0), ("decoder heads", 0)}  # not of what reads the source
        assert {(one.group, one.share) for one in found} == expected | units | none
        assert len(found) == len(expected | units | none)
        for one in found:
            built, part = one.build(), one.group.split()
            if part[1] == "heads":
                assert sum(built.heads[part[0]]) == 8 * one.share
                assert sum(map(sum, built.heads.values())) == 16 + 8 * one.share
            else:
                of_side = [b.width for b in feed_forwards(built.model) if b.side == part[0]]
                assert sum(of_side) == widths[one.group] * one.share
    found = [*parts.narrower(model, "ct2-int8", ("heads",))]
    both = {("encoder heads", 0.25), ("encoder heads", 0.5), ("decoder heads", 0.25)}
    assert {(one.group, one.share) for one in found} == both | {("decoder heads", 0.5)}
    last = found[-1].build().heads  # all attentions of the decoder, half of them
    assert last == {"encoder": [4, 4], "decoder": [2, 2], "cross": [2, 2]}


def test_which_caches_are_timed(tmp_path: Path) -> None:
    """Of each type by itself: other bits than it has, and other heads in two sizes."""
    path = toy_checkpoints.write(tmp_path / "c.pt", OURS, cache_bits_in_cross="8,8")
    model = open_model(path, toy_checkpoints.COPY)
    found = [*parts.narrower(model, "fairseq", ("cache",), ["latent"])]
    expected = {("unchanged decoder 8", 1), ("unchanged decoder 4", 1)}
    expected |= {("unchanged cross 0", 1), ("unchanged cross 4", 1)}
    for type_ in ("decoder", "cross"):
        for bits in (0, 4):
            expected |= {(f"latent {type_} {bits}", share) for share in (0.25, 1)}
    assert {(one.group, one.share) for one in found} == {(f"cache of {p}", s) for p, s in expected}
    for one in found:
        _, _, kind, type_, bits = one.group.split()
        for attention in attentions(one.build().model):
            if attention.type == type_:
                assert attention.module.cache_bits == int(bits)
            if kind == "latent":
                width = getattr(attention.module, "latent_dim", 0)
                assert width == (16 * one.share if attention.type == type_ else 0)
    found = [*parts.narrower(model, "ct2-int8", ("cache",), ["grouped-query"])]
    assert {one.group for one in found} == {
        f"cache of grouped-query {t} 0" for t in ("decoder", "cross")
    }


def test_a_machine_that_gets_slower_changes_nothing(
    model: Trained, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By half a per cent with every program: each is compared with those before and after it."""
    calls, wholes = [0], list[float]()

    def slower(one: Trained, _: Any) -> float:
        calls[0] += 1
        took = seconds(one) * 1.005 ** calls[0]
        if one is model:
            wholes.append(took)
        return took

    monkeypatch.setattr(parts, "_seconds", slower)
    times = time_parts(model, "fairseq", folder=counted)
    assert calls[0] > 50
    assert times.seconds == statistics.median(wholes[1:])  # the first allocates
    for changed in parts.narrower(model, "fairseq", ("heads", "units")):
        [found] = {c for share, c in times.changes[changed.group] if share == changed.share}
        ratio = seconds(changed.build()) / seconds(model)
        assert found == pytest.approx(ratio - 1, abs=0.003)
    heads = {f"{type_} {what}": 8 for type_ in ("decoder", "cross") for what in ("heads", "cache")}
    widths = {f"{b.side} units": 0 for b in feed_forwards(model.model)}
    for block in feed_forwards(model.model):
        widths[f"{block.side} units"] += block.width
    assert times.totals == {"encoder heads": 8, **heads, **widths}


@pytest.mark.parametrize("loading", [0.01, 1.0, 9.0])
@pytest.mark.parametrize("took", [0.05, 0.3, 1.5, 2.5, 20.0])
def test_as_many_turns_as_the_time_allows(loading: float, took: float, model: Trained) -> None:
    """Two translations a turn; where one is quick, one more to warm up."""
    models = [*parts.narrower(model, "fairseq", ("heads", "units"))]
    few, turns = parts._affordable(models, loading, took)
    before = loading + took * (took < parts.LONG)

    def all_of_them(number: int, each: int) -> float:
        return number * (before + 2 * each * took)

    groups = {one.group for one in models}
    least = len(groups)
    assert {one.group for one in few} == groups
    assert all_of_them(len(few), turns) <= parts.BUDGET or (len(few), turns) == (least, 1)
    assert turns == parts.MOST_TURNS or all_of_them(len(few), turns + 1) > parts.BUDGET
    assert len(few) == len(models) or all_of_them(len(few) + 1, 1) > parts.BUDGET
    assert turns <= parts.MOST_TURNS


def test_two_models_take_turns(model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three at least, fifty at most."""
    asked = list[int]()
    monkeypatch.setattr(parts, "program", lambda *_: asked.append)
    work = Work("fairseq", 7, 30)
    for least, number in ((0.0, 3), (1e6, 50)):
        found = parts.in_turns(model, model, work, least)
        assert len(found) == number
        assert all({*turn} == {"before", "after"} for turn in found)
    assert asked == [7] * 2 * (1 + 3 + 1 + 50), "one turn more to warm up"


def test_seconds_of_a_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a pause if the threads of the last one may still spin, which does not count."""
    now, asked = [0.0], list[int]()

    def wait(seconds: float) -> None:
        now[0] += seconds

    def run(number: int) -> None:
        asked.append(number)
        now[0] += 3

    monkeypatch.setattr(parts, "clock", lambda: now[0])
    monkeypatch.setattr(parts.time, "sleep", wait)
    for threads, expected in ((1, 3), (2, 3.25)):
        monkeypatch.setattr(torch, "get_num_threads", lambda threads=threads: threads)
        before = now[0]
        assert parts._seconds(run, Work("fairseq", 7, 30)) == 3
        assert now[0] - before == expected
    assert asked == [7, 7]


def test_sources_are_words(tmp_path: Path) -> None:
    """Not symbols of fairseq's; as many as there are positions for, next to two more tokens."""
    path = toy_checkpoints.write(
        tmp_path / "c.pt", OURS, max_source_positions=40, max_target_positions=50
    )
    model = open_model(path, toy_checkpoints.COPY)
    symbols = model.task.source_dictionary
    made = random_sources(model, 9, 30)
    assert made.shape == (9, 31)
    assert made[:, :-1].min() >= symbols.nspecial
    assert made[:, -1].eq(symbols.eos()).all()
    check(model, Work("fairseq", 1, 38))
    with refusing("length"):
        check(model, Work("fairseq", 1, 39))
    with refusing("positional"):  # CTranslate2 needs some
        path = toy_checkpoints.write(tmp_path / "c.pt", OURS, no_token_positional_embeddings=True)
        check(open_model(path, toy_checkpoints.COPY), Work("ct2-int8", 1, 3))
    with refusing("c.pt", "language model"):
        check(replace(model, model=language_model("transformer_lm")), Work("fairseq", 1, 3))


def test_seconds_are_of_what_was_asked(model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the order; the given model is not prepared for its engine."""
    work = Work("fairseq", 1, 30)
    key = parts.key_of(model, work, ("heads", "units"))
    assert key == parts.key_of(model, work, ("units", "heads"))
    others = {parts.key_of(model, work, cuts) for cuts in ((), ("heads",), ("heads", "cache"))}
    others |= {parts.key_of(model, w, ("heads", "units")) for w in (Work("fairseq", 2, 30),)}
    assert len(others - {key}) == 4
    with monkeypatch.context() as patch:
        patch.setattr(parts, "hardware", lambda cpu: f"another machine, {cpu}")
        assert parts.key_of(model, work, ("heads", "units")) != key
    with monkeypatch.context() as patch:  # a switch of this project's own steps
        patch.setenv("FAIRSEQ_COLLAB_ROUNDED", "torch")
        assert parts.key_of(model, work, ("heads", "units")) != key
        of_ct2 = parts.key_of(model, Work("ct2-int8", 1, 30), ())
    assert parts.key_of(model, Work("ct2-int8", 1, 30), ()) == of_ct2
    modules = [type(module) for module in model.model.modules()]
    program(model, "fairseq", 7)(1)
    assert [type(module) for module in model.model.modules()] == modules


@pytest.mark.parametrize(
    ("engine", "target"), [("fairseq", 0.85), ("onnx-int8", 0.85), ("ct2-int8", 0.93)]
)
def test_a_plan_by_seconds(
    engine: str, target: float, model: Trained, found: Evidence, counted: Path
) -> None:
    """It meets its target at the predicted time, which is that of the model that is built."""
    times = time_parts(model, engine, folder=counted)
    assert times.seconds == pytest.approx(seconds(model))
    assert times.uncut == 1
    assert all(times.change(site, as_it_is(site)) == 0 for site in attentions(model.model))
    result = shrink(model, time=target, times=times, evidence=found)
    share = seconds(result.model) / seconds(model)
    assert share <= target + 1e-4
    assert result.plan.time == pytest.approx(share, abs=1e-4)
    assert result.shares["time"] == result.plan.time
    assert result.plan.to_json()["time"] == result.plan.time
    if engine == "ct2-int8":
        assert all(len({*counts}) == 1 for counts in result.model.heads.values())
    with refusing("time=0.2"):
        shrink(model, time=0.2, times=times, evidence=found)


@pytest.mark.slow
def test_seconds_of_a_cache(model: Trained, found: Evidence, counted: Path) -> None:
    """A cache may cost time that other cuts have to make up for."""
    cuts = ("heads", "units", "cache")
    times = time_parts(model, "fairseq", parts=cuts, folder=counted)
    result = shrink(model, time=0.9, cache=0.2, times=times, evidence=found)
    assert result.shares["cache"] <= 0.2
    assert seconds(result.model) / seconds(model) == pytest.approx(result.plan.time, abs=0.02)
    only_heads = time_parts(model, "fairseq", parts=("heads",), folder=counted)
    with refusing("not measured"):
        shrink(model, time=0.9, cache=0.2, times=only_heads, evidence=found)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "engine"),
    [("grouped-query", "ct2-int8"), ("grouped-query", "fairseq"), ("collab", "fairseq")],
)
def test_seconds_of_other_kinds_of_heads(
    kind: str, engine: str, model: Trained, found: Evidence, counted: Path
) -> None:
    """Those that are chosen for a smaller cache are those that are timed."""
    cuts = ("heads", "units", "cache")
    times = time_parts(model, engine, parts=cuts, kinds=[kind], folder=counted)
    asked: dict[str, Any] = {"time": 0.93, "cache": 0.6, "only": cuts, "kinds": [kind]}
    result = shrink(model, **asked, times=times, evidence=found)
    assert result.shares["cache"] <= 0.6
    assert result.plan.sizes
    assert seconds(result.model) / seconds(model) == pytest.approx(result.plan.time, abs=0.02)
    assert seconds(result.model) / seconds(model) < 0.95
    if engine == "fairseq":
        with refusing("not measured"):
            shrink(
                model,
                **{**asked, "kinds": ["latent"], "cache": 0.1},
                times=times,
                evidence=found,
            )
    else:
        with refusing("kinds"):
            time_parts(model, engine, parts=cuts, kinds=["latent"], folder=counted)
    with refusing("kinds"):
        time_parts(model, engine, kinds=[kind], folder=counted)


def test_heads_that_share_are_timed_together(tmp_path: Path, counted: Path) -> None:
    """Groups stay whole in narrower models."""
    grouped = toy_checkpoints.write(
        tmp_path / "c.pt", "transformer_grouped_query", key_value_heads=2
    )
    times = time_parts(open_model(grouped, toy_checkpoints.COPY), "ct2-int8", folder=counted)
    assert min(times.changes["decoder heads"])[0] == 1 / 2


def test_two_processes_measure_times(
    model: Trained, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What another one has written meanwhile stays."""
    measure = parts._measured

    def slower(trained: Trained, work: Any, *more: Any) -> Any:
        table = measure(trained, work, *more)
        if work.batch == 1:
            time_parts(model, "fairseq", batch=2, folder=counted)
        return table

    monkeypatch.setattr(parts, "_measured", slower)
    time_parts(model, "fairseq", folder=counted)
    (path,) = counted.glob("times-*fairseq*.json")
    assert len(json.loads(path.read_text())["tables"]) == 2


def test_times_are_measured_once(
    model: Trained, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For a machine, an engine, a shape and a work."""
    first = time_parts(model, "fairseq", folder=counted)
    assert first.work == Work("fairseq", 1, 30)
    assert {group.split()[1] for group in first.changes} == {"heads", "units"}
    monkeypatch.setattr(parts, "_seconds", lambda *a: pytest.fail("timed twice"))
    assert time_parts(model, "fairseq", folder=counted) == first
    (path,) = counted.glob("times-*fairseq*.json")
    assert json.loads(path.read_text())["threads"]
    monkeypatch.setattr(parts, "_seconds", lambda *a: 2.0)
    assert time_parts(model, "fairseq", batch=2, folder=counted).seconds == 2
    assert len(repr(first).splitlines()) == 2


def test_a_folder_that_cannot_be_written_costs_no_times(
    model: Trained, counted: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """Also without any home folder, where the command ends before anything is timed."""
    (counted / "file").write_text("")
    assert time_parts(model, "fairseq", folder=counted / "file" / "times").seconds
    assert "not kept" in capsys.readouterr().err
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(Path, "home", Mock(side_effect=RuntimeError("no home")))
    with pytest.raises(OSError, match="set HOME"):
        time_parts(model, "fairseq")


def test_times_of_other_kinds_or_parts_are_not_taken(
    model: Trained, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def measured(_: Any, work: Work, cuts: Any, kinds: Any) -> dict[str, Any]:
        caches = {f"{work.batch} {[*cuts, *kinds]}": [(1.0, 0.0)]}
        return {"seconds": 1.0, "uncut": 1.0, "turns": 1, "changes": {}, "caches": caches}

    monkeypatch.setattr(parts, "_measured", measured)
    for cuts in (["cache"], ["heads", "cache"]):
        for kinds in (["latent"], ["collab"], ["latent", "collab"]):
            times = time_parts(model, "fairseq", parts=cuts, kinds=kinds, folder=counted)
            assert [*times.caches] == [f"1 {[*cuts, *kinds]}"]


@pytest.mark.parametrize(
    ("engine", "other"),
    [
        ("ct2-int8", {"ctranslate2": "0.1"}),
        ("ct2-int8", {"threads": 99}),
        ("ct2-int8", {engines.PACKED: "packed"}),
        ("fairseq", {"versions": {"fairseq-collab": "0.1"}}),
    ],
)
def test_times_of_other_versions_are_not_taken(
    engine: str,
    other: dict[str, Any],
    model: Trained,
    counted: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first, now = time_parts(model, engine, folder=counted), engines.settings()
    monkeypatch.setattr(parts, "settings", lambda: now | other)
    monkeypatch.setattr(parts, "_seconds", lambda *a: 2 + first.seconds)
    assert time_parts(model, engine, folder=counted).seconds == 2 + first.seconds


def test_what_no_shape_shows_has_times_of_its_own(tmp_path: Path) -> None:
    """Weights have the same shapes with a rounded cache, and with fewer, larger heads."""
    work, keys = Work("fairseq", 1, 30), set[str]()
    several: list[dict[str, int]]
    several = [{}, {"cache_bits": 8}, {"cache_bits": 4}, {"decoder_attention_heads": 2}]
    for options in several:
        path = toy_checkpoints.write(tmp_path / "c.pt", OURS, **options)
        keys.add(parts.key_of(open_model(path, toy_checkpoints.COPY), work, ("heads",)))
    assert len(keys) == len(several)


def test_fairseqs_own_attention_becomes_ours(tmp_path: Path, counted: Path) -> None:
    """That changes the time of a model of which nothing is cut."""
    stock = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    names = [m.group for m in parts.narrower(stock, "fairseq", ("units",))]
    assert names[0] == "uncut"
    assert "uncut" not in [m.group for m in parts.narrower(stock, "ct2-int8", ("units",))]


def test_nothing_that_can_be_cut(
    model: Trained, counted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parts, "narrower", lambda *_: [])
    with refusing("c.pt", "heads, units"):
        time_parts(model, "fairseq", folder=counted)


def test_a_missing_engine_is_an_error_of_its_option(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(engines, "find_spec", lambda _: None)
    path = toy_checkpoints.write(tmp_path / "c.pt", OURS)
    words = ["shrink", str(path), str(COPY), "--cpu", "--time=0.9", "--time-in=ct2-int8"]
    assert main([*words, f"--out={tmp_path / 'o.pt'}"]) == 1
    assert "--time-in" in capsys.readouterr().err


def test_more_seconds_than_were_asked_for(model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """Invented, measured with little noise: 0.97 of the given model's seconds."""
    turns = [{"before": 1.0, "after": share} for share in (0.96, 0.97, 0.98)]
    monkeypatch.setattr(parts, "in_turns", lambda *_: turns)
    work = Work("fairseq", 1, 30)
    assert "97.0%" in command.seconds_line(model, model, work, 0.9, 0.95)
    with refusing("97.0%", "80.0%"):
        command.seconds_line(model, model, work, 0.8, 0.8)


def test_times_without_a_target(model: Trained, found: Evidence) -> None:
    with refusing("time_parts"):
        shrink(model, time=0.5, evidence=found)
    times = PartTimes(Work("fairseq", 1, 30), 1.0, 1.0, {}, {}, {})
    with refusing("times"):
        shrink(model, heads=0.5, times=times, evidence=found)


def test_times_of_a_model_of_other_sizes(
    model: Trained, found: Evidence, counted: Path, tmp_path: Path
) -> None:
    """Not of another seed, which takes as long."""
    other = open_model(
        toy_checkpoints.write(tmp_path / "c.pt", OURS, encoder_ffn_embed_dim=96), COPY
    )
    times = time_parts(other, "fairseq", folder=counted)
    with refusing("times", "other sizes"):
        shrink(model, time=0.9, times=times, evidence=found)
    times.check(other)


@pytest.mark.parametrize(
    "words",
    [
        ["--out=o.pt", "--heads=0.5", "--time-in=ct2-int8"],
        ["--out=o.pt", "--heads=0.5", "--batch=2"],
        ["--time=0.5"],
        ["--out=o.pt", "--time=0.5", "--for=ct2"],
        ["--out=o.pt", "--time=0.5", "--for=onnx", "--time-in=ct2-int8"],
    ],
)
def test_options_without_effect(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with wrong_usage(capsys, "needs"):
        command.main(["c.pt", *words])


@pytest.mark.parametrize("engine", ["fairseq", "ct2-float32"])
def test_programs_translate_to_the_length(engine: str, model: Trained) -> None:
    """CTranslate2 has a word in place of the end, so that both make 7 words and one more token."""
    found = program(model, engine, 7)(3)
    tokens = [
        one.hypotheses[0] if engine == "ct2-float32" else one[0]["tokens"].tolist() for one in found
    ]
    assert [*map(len, tokens)] == [8] * 3


def test_a_model_that_was_timed_can_be_trained(tmp_path: Path) -> None:
    """fairseq's translation prepares a model in place, which then refuses to be trained."""
    mine = open_model(toy_checkpoints.write(tmp_path / "c.pt", OURS), COPY)
    program(mine, "fairseq", 3)(1)
    mine.model.train()
    assert mine.model.training


def test_ctranslate2_is_timed_with_a_shortlist(
    model: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It reads the lines of its folder on request only."""
    is_read = list[bool]()

    class Engine:
        def __init__(self, *folder: Any, compute_type: str, intra_threads: int, **options: Any):
            assert (compute_type, intra_threads) == ("float32", torch.get_num_threads())

        def translate_batch(self, lines: Any, *, use_vmap: bool, **options: Any) -> None:
            assert options["beam_size"] == 5
            is_read.append(use_vmap)

    monkeypatch.setattr(pytest.importorskip("ctranslate2"), "Translator", Engine)
    for shortlist in ((), ("w1\tw2",)):
        program(model, "ct2-float32", 7, shortlist)(1)
    assert is_read == [False, True]


@pytest.mark.slow
def test_onnx_runtime_translates_to_the_length(tmp_path: Path) -> None:
    """The program that is timed; an export takes seconds."""
    options = {"encoder_layers": 1, "decoder_layers": 1}
    trained = open_model(toy_checkpoints.write(tmp_path / "c.pt", OURS, **options), COPY)
    work = Work("onnx-int8", 3, 7)
    check(trained, work)
    found = program(trained, work.timed_in, work.length)(work.batch)
    assert [len(hypotheses[0].tokens) for hypotheses in found] == [7] * 3


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["fairseq", "ct2-float32"])
def test_the_command(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Real engines: what it measures is not looked at."""
    pytest.importorskip("ctranslate2")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(parts, "BUDGET", 1)
    monkeypatch.setattr(parts, "TURNS", 0.1)
    monkeypatch.setattr(command, "DRIFT", 1e9)
    checkpoint = toy_checkpoints.write(tmp_path / "c.pt")
    words = [str(checkpoint), str(toy_checkpoints.COPY), "--cpu", "--sentences=20", "--check"]
    words += ["--time=1", "--length=4", f"--time-in={engine}", f"--out={tmp_path / 'o.pt'}"]
    assert command.main(words) == 0
    assert re.search(r"^seconds: \d", capsys.readouterr().out, re.M)
    tables = [*(tmp_path / "fairseq_collab").glob("times-*.json")]
    assert len(tables) == 1
    assert engine in tables[0].name
