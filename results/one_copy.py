"""One latent of the encoder's output for all cross-attentions: writes one_copy.json.

    python results/one_copy.py results/one_copy.json --data data/multi30k --model NAME=a.pt

Bytes of a token in the KV cache and seconds of a step of decoding are those of models with random
weights, with 2, 3 and 6 decoder layers, in one thread and in seconds of the processor.  Losses are
those of trained models that are converted, and of the cheapest plans with one latent for all layers
and without.  Models of a number of layers take turns.  Run again, it goes on where it was.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from collab_common.errors import UserError
from collab_common.progress import bar, say
from collab_lab.clock.bench import PRESETS, random_model, random_task
from collab_lab.metrics.cost import totals
from collab_lab.metrics.generate import BEAM
from collab_lab.shrinking.by_hand import conversion
from collab_lab.shrinking.cut import ANY_BITS, NewHeads
from collab_lab.shrinking.cuts.bits import Bits
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.cuts.one_copy import OneCopy
from collab_lab.shrinking.making import make, unfitted
from collab_lab.shrinking.programme import Programme
from collab_lab.shrinking.shape import whole_costs
from collab_lab.trained.attentions import Attention
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.decoding.beam_search import ModelDecoding
from results.measured import File, Work, origin

STANDARD, OWN, ONE = "standard heads", "a latent a layer", "one for all layers"
LAYERS = (2, 3, 6)
#: Tokens of a source whose steps are timed.
LENGTHS = (30, 600)
#: Steps of a turn, and turns.
STEPS, TURNS = 10, 3
#: Bits of the caches that are timed: 8 are unpacked as fast as 4.
TIMED = (0, 4)
#: Words of the target.
VOCABULARY = 8_000
#: Shares of the KV cache of plans.
SHARES = (1 / 8, 1 / 16)


def cases(d: int) -> dict[str, tuple[str, dict[str, Any]]]:
    """Architectures and options, by kind and bits: latents as wide as the model."""
    kinds = {
        STANDARD: ("transformer_headsize_n", {}),
        OWN: ("transformer_latent", {"latent_dim": d}),
        ONE: ("transformer_latent", {"latent_dim": d, "shared_latent_in_cross": d}),
    }
    return {
        f"{kind}, {bits}": (arch, {**options, "cache_bits": str(bits)})
        for kind, (arch, options) in kinds.items()
        for bits in ANY_BITS
    }


# ---- random weights ------------------------------------------------------------------------------


def measure_steps(file: File, preset: str, made: Mapping[str, Any], turns: int) -> None:
    """Bytes, and seconds of a step, of models of each number of layers."""
    d = PRESETS[preset].options.get("decoder_embed_dim", 512)
    task = random_task(preset, 1, None if preset == "tiny" else VOCABULARY)
    for layers in LAYERS:
        wanted = {n: {"layers": layers, "length": n, "d": d} for n in LENGTHS}
        missing = [n for n in LENGTHS if not file.is_made("steps", wanted[n], made["made_from"])]
        if not missing:
            continue
        sizes = {"decoder_layers": layers, "encoder_layers": 1, "max_source_positions": LENGTHS[-1]}
        models = {
            name: random_model(arch, preset, task, **options, **sizes).model
            for name, (arch, options) in cases(d).items()
        }
        for length in missing:
            timed = [name for name in models if name.endswith(tuple(f", {b}" for b in TIMED))]
            found = [
                {
                    name: round(step_seconds(models[name], length), 7)
                    for name in timed[:: -1 if turn % 2 else 1]
                }
                for turn in bar(f"{layers} layers, {length} tokens", range(turns))
            ]
            row = {**wanted[length], **made, "turns": found}
            row["cache"] = {name: totals(model)["cache"] // 8 for name, model in models.items()}
            file.put("steps", wanted[length], row)


@torch.inference_mode()
def step_seconds(model: Any, length: int) -> float:
    """Seconds of one of :data:`STEPS` steps of one sentence, beam 5, after the first ones.

    They are those of the processor, of one thread: a busy machine changes them little.
    """
    words = torch.randint(4, 40, (1, length), generator=torch.Generator().manual_seed(1))
    source = {"src_tokens": words, "src_lengths": torch.tensor([length])}
    decoding = ModelDecoding(model, source, 1.0)
    tokens = torch.full((BEAM, STEPS + 2), 5)
    for steps in (1, 2):  # they allocate
        decoding.step(tokens[:, :steps])
    start = time.process_time()
    for steps in range(3, STEPS + 3):
        decoding.step(tokens[:, :steps])
    return (time.process_time() - start) / STEPS


# ---- trained models ------------------------------------------------------------------------------


def wanted() -> Iterator[dict[str, Any]]:
    """Changes of a trained model: latents as wide as the inputs, then plans."""
    for name in (OWN, ONE):
        yield from ({"name": name, "bits": bits, "share": None} for bits in ANY_BITS)
    for share in SHARES:
        yield from ({"name": name, "bits": None, "share": share} for name in (OWN, ONE))


def changed(work: Work, keys: Mapping[str, Any]) -> tuple[Trained, float, dict[str, Any]]:
    """The changed model, its price, and what was chosen."""
    model, found, shared = work.model, work.found, keys["name"] == ONE
    if keys["share"] is None:
        own, one = Latent(), OneCopy()
        sizes = {a: own.exact_size(a.module) for a in cached(found.attentions)}
        crossing = {a: size for a, size in sizes.items() if shared and a.type == "cross"}
        rest = {a: size for a, size in sizes.items() if a not in crossing}
        given: dict[NewHeads, dict[Attention, int]] = {own: rest}
        given |= {one: crossing} if crossing else {}
        plan = conversion(model, given, dict.fromkeys(sizes, keys["bits"]))
        made, plan = unfitted(found, plan)
        return made, plan.price, {}
    programme = Programme(found, "latent", [Bits(), Latent(), OneCopy()])
    for site, options in programme.options.items():
        if isinstance(site, Attention) and site.type == "cross":
            programme.options[site] = [o for o in options if bool(o.shape.shared) == shared]
    plan = programme.solve({"cache": keys["share"]})
    made, plan = make(found, plan)[:2]
    chosen = {"sizes": plan.sizes, "bits_of": plan.bits}
    named = {name: {str(a): n for a, n in of.items()} for name, of in chosen.items()}
    return made, plan.price, named


def cached(attentions: Mapping[Attention, Any]) -> list[Attention]:
    """The attentions of the decoder."""
    return [attention for attention in attentions if attention.type != "encoder"]


def measure_losses(
    file: File, name: str, checkpoint: Path, args: argparse.Namespace, made: Mapping[str, Any]
) -> None:
    """Rows of a trained model."""
    rows = [{"model": name, **keys} for keys in wanted()]
    rows = [keys for keys in rows if not file.is_made("losses", keys, made["made_from"])]
    if not rows:
        return
    work = Work(checkpoint, args.data, args.sentences)
    file.put("models", {"model": name}, {"model": name, **work.about()})
    for keys in rows:
        try:
            model, price, more = changed(work, keys)
        except UserError as error:  # such as a share below the least: the table has a dash
            say(f"{keys}: {error}")
            continue
        share = totals(model.model)["cache"] / whole_costs(work.model).cache
        numbers = {"cache": round(share, 6), "price": round(price, 6), **work.lost(model)}
        file.put("losses", keys, {**keys, **numbers, **more, **made})
        say(f"{keys}: {numbers}")


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("out", type=Path, help="results/one_copy.json")
    parser.add_argument("--data", type=Path, help="data folder of the models")
    parser.add_argument("--model", action="append", default=[], metavar="NAME=CHECKPOINT")
    parser.add_argument("--sentences", type=int, default=1000, help="calibration sentences")
    parser.add_argument("--tiny", action="store_true", help="steps of a few weights, for tests")
    args = parser.parse_args(argv)
    if bool(args.model) != bool(args.data):
        parser.error("--model goes with --data")
    file = File(args.out)
    start = time.perf_counter()
    for name, _, checkpoint in (model.partition("=") for model in args.model):
        made = origin("one_copy.py", argv, Path(checkpoint), args.data, args.sentences)
        measure_losses(file, name, Path(checkpoint), args, made)
    preset, turns = ("tiny", 2) if args.tiny else ("wmt_en_de", TURNS)
    torch.set_num_threads(1)
    measure_steps(file, preset, origin("one_copy.py", argv, preset, turns), turns)
    say(f"{time.perf_counter() - start:.0f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
