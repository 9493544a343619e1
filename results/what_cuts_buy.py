"""What cuts buy in seconds, next to what ``shrink --time`` predicts.

Models of base size with random weights translate sentences of one length in CTranslate2 (int8 and
float32), in ONNX Runtime (int8), and in fairseq with this plug-in.
"""

from __future__ import annotations

import functools
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fairseq.models.transformer import TransformerConfig

from collab_common.progress import bar
from collab_lab.clock.bench import PRESETS, random_model, random_task
from collab_lab.clock.engines import Program, program
from collab_lab.clock.parts import time_parts
from collab_lab.clock.turns import pause
from collab_lab.shrinking.engine import engine_of
from collab_lab.shrinking.shape import Shape, Site, as_it_is, layer_parameters, sites_of, width_of
from results.records import Content
from results.seconds import LONG, in_turns

HEADS, LATENT, GROUPED = (
    f"transformer_{kind}" for kind in ("headsize_n", "latent", "grouped_query")
)
#: The engines of the page, of those that can be timed.
ENGINES = ("fairseq", "ct2-int8", "ct2-float32")
#: With ONNX Runtime, whose export takes longest.
ALL_ENGINES = (*ENGINES, "onnx-int8")
#: Words of the target of which one word of the source lets CTranslate2 choose.
SHORTLIST = 50
WHOLE, SHORT, FEW_WORDS = "whole model", "shortlist of words", "vocabulary of 8,000"
FEW = 8_000


class Cut(NamedTuple):
    """A smaller model: its architecture, and what its options are in place of the whole model's."""

    arch: str
    options: dict[str, Any]


def cuts(d: int, heads: int, units: int, layers: int) -> dict[str, Cut]:
    """Smaller models, by their names in tables."""

    def cut(
        encoder: float, encoder_units: float, decoder: float = 1, decoder_units: float = 1
    ) -> Cut:
        """Shares of the heads and of the units that stay on each side."""
        own, cross = (max(1, round(share * heads)) for share in (encoder, decoder))
        widths = [max(1, round(share * units)) for share in (encoder_units, decoder_units)]
        counts = {"encoder": own, "decoder": cross, "cross": cross}
        of_heads = {f"heads_in_{type_}": str(number) for type_, number in counts.items()}
        names = ("encoder_ffn_embed_dim", "decoder_ffn_embed_dim")
        of_units = dict(zip(names, widths, strict=True))
        return Cut(HEADS, {**of_heads, **of_units, "head_size": d // heads})

    def latents(part: int, bits: str) -> Cut:
        sizes = {"latent_dim": 2 * d // part, "latent_dim_in_encoder": d}
        return Cut(LATENT, {**sizes, "cache_bits": bits})

    def grouped(part: int) -> Cut:
        return Cut(GROUPED, {"key_value_heads": max(1, heads // part)})

    five, half, quarter = 5 / 8, 1 / 2, 1 / 4
    return {
        "5 of 8 heads": cut(five, 1, five),
        "4 of 8 heads": cut(half, 1, half),
        "keys and values 1/2": grouped(2),
        "keys and values 1/4": grouped(4),
        "F 1,024": cut(1, half, 1, half),
        "F 512": cut(1, quarter, 1, quarter),
        "4 heads, F 1,024": cut(half, half, half, half),
        "4 heads, F 512": cut(half, quarter, half, quarter),
        # Heads and units as three trained models of Multi30k (d = 128) lose them in
        # `shrink --parameters SHARE --for ct2`; widths in multiples of 64 that leave the share.
        "plan, 80%": cut(3 / 8, 1216 / 2048),
        "plan, 66%": cut(2 / 8, 576 / 2048, 1, 1792 / 2048),
        "plan, 50%": cut(1 / 8, 576 / 2048, 6 / 8, 1344 / 2048),
        "3 decoder layers": Cut(HEADS, {"decoder_layers": max(1, layers // 2)}),
        "cache in 8 bits": Cut(HEADS, {"cache_bits": "8"}),
        "cache in 4 bits": Cut(HEADS, {"cache_bits": "4"}),
        "latents 1/4": latents(4, "0"),
        "latents 1/8, 4 bits": latents(8, "4"),
    }


@functools.lru_cache(1)
def programs_of(
    preset: str, vocabulary: int, length: int, names: tuple[str, ...], engines: tuple[str, ...]
) -> tuple[dict[str, Program], dict[str, int]]:
    """All models of a case by engine and name (``ct2-int8: F 512``); parameters of their layers.

    Args:
        names: of :func:`cuts`, next to the whole model; without any, all that are not of the cache.
    """
    found, parameters = dict[str, Program](), dict[str, int]()
    task = random_task(preset, 1, vocabulary)
    every = cuts(*sizes_of(preset))
    some = names or [name for name in every if "cache" not in name and "latent" not in name]
    for name in bar("models", [WHOLE, *some]):
        cut = every.get(name, Cut(HEADS, {}))
        more = {"max_source_positions": length + 2, "max_target_positions": length + 3}
        model = random_model(cut.arch, preset, task, **cut.options, **more)
        parameters[name] = layer_parameters(model.model)
        for engine in engines:
            is_ct2 = engine_of(engine).name == "ct2"
            if not is_ct2 or (cut.arch != LATENT and "cache_bits" not in cut.options):
                found[f"{engine}: {name}"] = program(model, engine, length)
            if name == WHOLE and is_ct2 and not names:
                found[f"{engine}: {SHORT}"] = program(model, engine, length, shortlist(task))
    if vocabulary > FEW:
        model = random_model(HEADS, preset, random_task(preset, 1, FEW))
        for engine in engines:
            found[f"{engine}: {FEW_WORDS}"] = program(model, engine, length)
    return found, parameters


def bought(
    preset: str, vocabulary: int, length: int, names: tuple[str, ...], engines: tuple[str, ...],
    batch: int, turns: int,
) -> Content:  # fmt: skip
    """Seconds of a batch, in turns, by engine and name; parameters of the layers by name."""
    programs, parameters = programs_of(preset, vocabulary, length, names, engines)
    if length < LONG:
        for run in programs.values():  # the first translations allocate
            run(min(batch, 2))
    found = in_turns(programs, turns, batch, pause())
    turns_of = [{name: round(own, 6) for name, own in turn.items()} for turn in found]
    return {"parameters": parameters, "turns": turns_of}


def predicted_seconds(preset: str, vocabulary: int, length: int, batch: int) -> Content:
    """The predicted shares of the whole model's seconds, of cuts of heads and units.

    It takes two minutes an engine.
    """
    task, predicted = random_task(preset, 1, vocabulary), dict[str, float]()
    every = {WHOLE: Cut(HEADS, {}), **cuts(*sizes_of(preset))}
    models = {
        name: random_model(HEADS, preset, task, **cut.options)
        for name, cut in every.items()
        if cut.arch == HEADS and not {*cut.options} & {"cache_bits", "decoder_layers"}
    }
    for engine in ENGINES:
        with tempfile.TemporaryDirectory() as folder:
            how: dict[str, Any] = {"batch": batch, "length": length, "folder": Path(folder)}
            times = time_parts(models[WHOLE], engine, **how)
        for name, model in models.items():
            counts = {str(site): width_of(site) for site in sites_of(model)}
            changes = (
                times.change(site, narrowed(site, counts[str(site)]))
                for site in sites_of(models[WHOLE])
            )
            predicted[f"{engine}: {name}"] = round(times.uncut + sum(changes), 4)
    return {"predicted": predicted}


def shortlist(task: Any) -> list[str]:
    """For each word, :data:`SHORTLIST` random words: two words share next to none of theirs."""
    symbols = task.target_dictionary.symbols[task.target_dictionary.nspecial :]
    random = np.random.default_rng(2)
    picked = random.integers(len(symbols), size=(len(symbols), SHORTLIST))
    return [
        f"{word}\t{' '.join(symbols[i] for i in row)}"
        for word, row in zip(symbols, picked, strict=True)
    ]


def narrowed(site: Site, number: int) -> Shape:
    """The shape of a site that keeps some heads or units."""
    stay, whole = tuple(range(number)), as_it_is(site)
    return replace(whole, heads=stay) if whole.heads else replace(whole, units=stay)


def sizes_of(preset: str) -> tuple[int, int, int, int]:
    """d, heads, units and layers of a decoder."""
    options, usual = PRESETS[preset].options, TransformerConfig().decoder
    names = ("embed_dim", "attention_heads", "ffn_embed_dim", "layers")
    d, heads, units, layers = (
        options.get(f"decoder_{name}", getattr(usual, name)) for name in names
    )
    return d, heads, units, layers
