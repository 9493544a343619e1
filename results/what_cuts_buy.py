"""What cuts buy in seconds: writes what_cuts_buy.json, in turns in one process.

    OMP_NUM_THREADS=1 python results/what_cuts_buy.py results/what_cuts_buy.json

Models of base size with random weights translate sentences of one length in CTranslate2 (int8 and
float32) and in fairseq with this plug-in.  All models of a case take turns (A B C, C B A, ...), and
the file has the seconds of each turn.  Run again, it goes on where it was.  With ``--predict`` it
adds what ``shrink --time`` predicts of cuts of heads and units, in two minutes an engine and batch.
"""

from __future__ import annotations

import argparse
import shlex
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from fairseq.models.transformer import TransformerConfig

import fairseq_collab  # noqa: F401 (registers all architectures)
from collab_common.errors import UserError
from collab_common.files import read_json, write_json
from collab_common.progress import bar, say
from collab_common.provenance import circumstances
from collab_lab.clock.bench import PRESETS, random_model, random_task
from collab_lab.clock.engines import PACKED, Program, pause, program, settings
from collab_lab.clock.parts import time_parts
from collab_lab.clock.turns import turns
from collab_lab.shrinking.shape import Shape, Site, as_it_is, layer_parameters, sites_of, width_of
from results.measured import digest

HEADS, LATENT, GROUPED = (
    f"transformer_{kind}" for kind in ("headsize_n", "latent", "grouped_query")
)
#: The engines of the page, of those that can be timed.
ENGINES = ("fairseq", "ct2-int8", "ct2-float32")
#: Words of the target of which one word of the source lets CTranslate2 choose.
SHORTLIST = 50
WHOLE, SHORT, FEW_WORDS = "whole model", "shortlist of words", "vocabulary of 8,000"
FEW = 8_000
#: Tokens from which a first translation counts: it takes a quarter of a minute.
LONG = 512


class Case(NamedTuple):
    """Models that take turns.

    Attributes:
        batches: with the number of turns of each.
        names: of :func:`cuts`, next to the whole model; without any, all that are not of the cache.
    """

    vocabulary: int
    length: int
    batches: Mapping[int, int]
    names: tuple[str, ...] = ()


CACHES = (
    *("keys and values 1/2", "keys and values 1/4", "cache in 8 bits", "cache in 4 bits"),
    *("latents 1/4", "latents 1/8, 4 bits"),
)
CASES = (
    Case(32_000, 30, {1: 8, 32: 3}),
    Case(8_000, 512, {1: 3}, CACHES),
    Case(
        8_000, 30, {1: 8, 32: 3},
        ("4 of 8 heads", "F 512", "4 heads, F 512", "plan, 66%", "3 decoder layers"),
    ),
)  # fmt: skip
TINY = (Case(60, 5, {1: 2}), Case(40, 6, {1: 2}, CACHES))


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


def programs_of(case: Case, preset: str) -> tuple[dict[str, Program], dict[str, int]]:
    """All models of a case by engine and name (``ct2-int8: F 512``); parameters of their layers."""
    found, parameters = dict[str, Program](), dict[str, int]()
    length = case.length
    task = random_task(preset, 1, case.vocabulary)
    every = cuts(*sizes_of(preset))
    names = case.names or [name for name in every if "cache" not in name and "latent" not in name]
    for name in bar("models", [WHOLE, *names]):
        cut = every.get(name, Cut(HEADS, {}))
        more = {"max_source_positions": length + 2, "max_target_positions": length + 3}
        model = random_model(cut.arch, preset, task, **cut.options, **more)
        parameters[name] = layer_parameters(model.model)
        for engine in ENGINES:
            if engine == "fairseq" or (cut.arch != LATENT and "cache_bits" not in cut.options):
                found[f"{engine}: {name}"] = program(model, engine, length)
            if name == WHOLE and engine != "fairseq" and not case.names:
                found[f"{engine}: {SHORT}"] = program(model, engine, length, shortlist(task))
    if case.vocabulary > FEW:
        model = random_model(HEADS, preset, random_task(preset, 1, FEW))
        for engine in ENGINES:
            found[f"{engine}: {FEW_WORDS}"] = program(model, engine, length)
    return found, parameters


def shortlist(task: Any) -> list[str]:
    """For each word, :data:`SHORTLIST` random words: two words share next to none of theirs."""
    symbols = task.target_dictionary.symbols[task.target_dictionary.nspecial :]
    random = np.random.default_rng(2)
    picked = random.integers(len(symbols), size=(len(symbols), SHORTLIST))
    return [
        f"{word}\t{' '.join(symbols[i] for i in row)}"
        for word, row in zip(symbols, picked, strict=True)
    ]


def record_of(content: dict[str, Any], case: Case, batch: int) -> dict[str, Any]:
    """The record of a case and batch in a file, made if it has none."""
    key = {"vocabulary": case.vocabulary, "length": case.length, "batch": batch}
    for record in content["records"]:
        if key.items() <= record.items():
            return record
    content["records"].append({**key, "parameters": {}, "turns": []})
    return content["records"][-1]


def predict(content: dict[str, Any], case: Case, preset: str, out: Path) -> None:
    """Add the predicted shares of the whole model's seconds to the records of a case."""
    task = random_task(preset, 1, case.vocabulary)
    every = {WHOLE: Cut(HEADS, {}), **cuts(*sizes_of(preset))}
    models = {
        name: random_model(HEADS, preset, task, **cut.options)
        for name, cut in every.items()
        if cut.arch == HEADS and not {*cut.options} & {"cache_bits", "decoder_layers"}
    }
    for engine, batch in product(ENGINES, case.batches):
        record = record_of(content, case, batch)
        predicted = record.setdefault("predicted", {})
        if f"{engine}: {WHOLE}" in predicted:
            continue
        with tempfile.TemporaryDirectory() as folder:
            how: dict[str, Any] = {"batch": batch, "length": case.length, "folder": Path(folder)}
            times = time_parts(models[WHOLE], engine, **how)
        for name, model in models.items():
            counts = {str(site): width_of(site) for site in sites_of(model)}
            changes = (
                times.change(site, narrowed(site, counts[str(site)]))
                for site in sites_of(models[WHOLE])
            )
            predicted[f"{engine}: {name}"] = round(times.uncut + sum(changes), 4)
        write_json(out, content)


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


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="results/what_cuts_buy.json")
    parser.add_argument("--tiny", action="store_true", help="models of a few weights, for tests")
    parser.add_argument(
        "--turns", type=float, default=1.0, help="factor of the number of turns (default: 1)"
    )
    parser.add_argument("--predict", action="store_true", help="add predictions, for 30 tokens")
    args = parser.parse_args(argv)
    preset = "tiny" if args.tiny else "wmt_en_de"
    cases = [
        case._replace(batches={b: max(2, round(args.turns * n)) for b, n in case.batches.items()})
        for case in (TINY if args.tiny else CASES)
    ]
    command = f"python results/what_cuts_buy.py {shlex.join(argv)}"
    now = {"command": command, **circumstances(cpu=True), **settings(), "made_from": digest(preset)}
    content = read_json(args.out) if args.out.exists() else {**now, "seconds": 0, "records": []}
    if different := [k for k in ("made_from", *settings()) if content.get(k) != now[k]]:
        problem = f"has turns with another {different[0]}"
        raise UserError(problem, args.out, "remove it, or give another name")
    print(f"CTranslate2 {now['ctranslate2']}, {now['threads']} threads, {PACKED}={now[PACKED]}")
    for case in cases:
        records = {batch: record_of(content, case, batch) for batch in case.batches}
        if all(len(records[batch]["turns"]) >= wanted for batch, wanted in case.batches.items()):
            continue
        programs, parameters = programs_of(case, preset)
        for batch, wanted in case.batches.items():
            record, start = records[batch], time.time()
            record["parameters"] = parameters
            if case.length < LONG:
                for run in programs.values():  # the first translations allocate
                    run(min(batch, 2))
            missing = range(len(record["turns"]), wanted)
            for turn, seconds in zip(missing, turns(programs, [batch], pause()), strict=False):
                record["turns"].append({name: round(own, 6) for name, own in seconds.items()})
                content["seconds"] = round(content["seconds"] + time.time() - start, 1)
                start = time.time()
                write_json(args.out, content)
                done = f"turn {turn + 1} of {wanted}: {sum(seconds.values()):.1f} s"
                say(f"{case.vocabulary} words, {case.length} tokens, batch {batch}, {done}")
    if args.predict:
        predict(content, cases[0], preset, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
