"""What a smaller KV cache loses where translations are long: writes results/long.json.

    python results/long.py results/long.json --model NAME=CHECKPOINT --documents D --sentences S --other O

D, S and O are data folders of one vocabulary: documents (``data prepare --documents N,N``), the same
sentences alone, and another text (both ``--like D``).  Each row is one change of the KV cache,
calibrated on one of them (1,000 sentences, or documents with equally many tokens) and refitted; nothing
is trained.  It has the rise of the loss, in bits per target token, of every document by position in
the translation, and of the two other sets.  ``--translate N`` translates N documents of the test set
in place of that.

Without S and O, D may be any text: all is calibrated on it, and measured on it alone.

A language model reads blocks of the length that it was trained on (D), and with ``--block N`` the same
data in blocks of N tokens (S).

Rivals keep the heads: keys in 4 and values in 2 bits (arXiv 2502.15075), and TurboQuant's rotation
with a Lloyd-Max codebook of 2 or 3 bits for each number (arXiv 2504.19874, its first part).  Their
numbers are rounded in the whole pass, and they have the same refit.
"""  # noqa: E501

from __future__ import annotations

import argparse
import functools
import math
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from collab_common import BREAK
from collab_lab import convert, open_model, shrink
from collab_lab.metrics.cost import cache_share
from collab_lab.metrics.generate import BEAM, translate
from collab_lab.metrics.loss import cross_entropy, mean_bits, predicted
from collab_lab.metrics.translation_scores import score
from collab_lab.shrinking.cut import Cut, Offer
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.evidence import Evidence
from collab_lab.shrinking.making import make
from collab_lab.shrinking.plan import Plan
from collab_lab.shrinking.shape import Shape, Site, as_it_is, sites_of
from collab_lab.shrinking.smaller import Smaller
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained, in_evaluation
from collab_lab.trained.sentences import batches, dataset_of, samples
from fairseq_collab.attention.rounding import group_sizes
from results.measured import File, origin
from results.rivals import svd_latents

#: Where the parts of a translation end, in target tokens.
PARTS = (64, 256, 1024)
SETS = ("valid", "test")
#: Sentences to calibrate on.
CALIBRATION = 1000
#: The texts that a change is calibrated on, and measured on.
TEXTS = ("documents", "sentences", "other")
#: Resamplings of documents, and documents up to which the rise of each is kept.
DRAWS, KEPT = 2000, 100


class Change(NamedTuple):
    """A change of the KV cache: its name in tables, and the text that it is calibrated on."""

    name: str
    calibrated: str = "documents"


class Text:
    """A data folder: the model opened on it, its calibration sentences, its held-out text."""

    def __init__(self, checkpoint: Path, data: Path, sentences: int, **changed: Any):
        self.model, self.number = open_model(checkpoint, data, **changed), sentences
        self.held_out = {name: samples(self.model, name) for name in SETS}

    @property
    def length(self) -> float:
        """Mean number of target tokens of a sentence, or document, of the training set."""
        dataset = dataset_of(self.model, "train")
        return float(getattr(dataset, "tgt_sizes", dataset.sizes).mean())

    @functools.cached_property
    def found(self) -> Evidence:
        return Evidence.of(self.model, sentences=self.number)


# ---- changes -------------------------------------------------------------------------------------


def changes(texts: Collection[str]) -> Iterator[Change]:
    yield from map(Change, MADE)
    for calibrated in TEXTS[1:]:
        for name in ("latents, an eighth", "latents, a sixteenth", "4 bits"):
            if calibrated in texts:
                yield Change(name, calibrated)


def rounded_alone(text: Text, share: float) -> Any:
    """Heads as they are; bits by price."""
    return shrink(text.model, cache=share, kinds=("unchanged",), evidence=text.found)


def latents(text: Text, share: float) -> Any:
    return shrink(text.model, cache=share, kinds=("latent",), evidence=text.found)


def input_in_4_bits(text: Text) -> Any:
    """A latent of full width, which is the layer's input, or the encoder's output."""
    width = int(text.model.options["decoder_embed_dim"])
    return convert(text.model, "latent", by_type=cached(text, width), cache_bits=4, **known(text))


def grouped(text: Text) -> Any:
    sizes = cached(text, text.model.heads["decoder"][0] // 4)
    return convert(text.model, "grouped-query", by_type=sizes, cache_bits=None, **known(text))


def cached(text: Text, size: int) -> Any:
    """A size of all attentions that have a KV cache."""
    kinds = text.model.attentions.items()
    return {kind: size if kind != "encoder" else 0 for kind, layers in kinds if layers}


def known(text: Text) -> dict[str, Any]:
    return {"statistics": text.found.attentions, "sentences": text.number}


def svd_in_4_bits(text: Text) -> Smaller:
    """4.5 bits a number, its share of the scales included: 0.444 of the numbers are an eighth."""
    return svd_latents(text.found, 0.125 * 16 / 4.5, 4)


def hooked(text: Text, keys: Callable[[Tensor], Tensor], values: Callable[[Tensor], Tensor]) -> Any:
    """The heads as they are, what is cached changed by functions, and a refit."""
    return make(text.found, simulated(text.model, Simulated(keys, values)))


class Simulated(Cut):
    """What is cached, changed by functions of keys and of values; the model cannot be saved."""

    name, part = "simulated", "cache"

    def __init__(self, keys: Callable[[Tensor], Tensor], values: Callable[[Tensor], Tensor]):
        self.keys, self.values = keys, values

    def offers(self, site: Site, evidence: Evidence) -> Sequence[Offer]:
        return [Offer(as_it_is(site), math.nan)]  # no price is known

    def apply(self, draft: Draft, site: Site, shape: Shape) -> None:
        assert isinstance(site, Attention)
        draft.simulate(site, "k_proj", self.keys)
        draft.simulate(site, "v_proj", self.values)


def simulated(model: Trained, cut: Cut) -> Plan:
    """The plan that has a cut at every KV cache."""
    cached = [a for a in attentions(model.model) if a.type != "encoder"]
    shapes = {site: as_it_is(site) for site in sites_of(model)}
    return Plan(cut.name, shapes, [(cut, cached)])


def uniform(bits: int) -> Callable[[Tensor], Tensor]:
    """As a rounded cache of ours, with any number of bits."""
    levels = 2**bits - 1

    def change(x: Tensor) -> Tensor:
        groups, _ = group_sizes(x.size(-1))
        parts = x.unflatten(-1, (groups, -1))
        low, high = parts.aminmax(dim=-1, keepdim=True)
        low, scale = low.half().float(), ((high - low) / levels).clamp(min=2.0**-24).half().float()
        codes = ((parts - low) / scale).round().clamp(0, levels)
        return (codes * scale + low).flatten(-2)

    return change


def rotated(bits: int) -> Callable[[Tensor], Tensor]:
    """A random rotation, then the best codebook of normal numbers; the norm is kept in 16 bits."""
    book = lloyd_max(2**bits)

    @functools.cache
    def rotation(width: int) -> Tensor:
        generator = torch.Generator().manual_seed(1)
        return torch.linalg.qr(torch.randn(width, width, generator=generator))[0]

    def change(x: Tensor) -> Tensor:
        turn = rotation(x.size(-1))
        size = (x.square().mean(-1, keepdim=True).sqrt() + 1e-12).half().float()
        nearest = torch.bucketize(x @ turn / size, (book[1:] + book[:-1]) / 2)
        return (book[nearest] * size) @ turn.T

    return change


def lloyd_max(levels: int) -> Tensor:
    """The codebook of least squared error for a standard normal number."""
    grid = torch.linspace(-6, 6, 24001, dtype=torch.float64)
    weight = torch.exp(-grid.square() / 2)
    book = torch.linspace(-2, 2, levels, dtype=torch.float64)
    for _ in range(500):
        cell = torch.bucketize(grid, (book[1:] + book[:-1]) / 2)
        total = torch.zeros(levels, dtype=torch.float64).index_add(0, cell, weight)
        book = torch.zeros_like(total).index_add(0, cell, weight * grid) / total
    return book.float()


MADE: dict[str, Callable[[Text], Any]] = {
    "8 bits": lambda text: rounded_alone(text, 0.53125),
    "4 bits": lambda text: rounded_alone(text, 0.28125),
    "the layer's input in 4 bits": input_in_4_bits,
    "latents, a quarter": lambda text: latents(text, 0.25),
    "latents, an eighth": lambda text: latents(text, 0.125),
    "latents, a sixteenth": lambda text: latents(text, 0.0625),
    "grouped query, a quarter": grouped,
    "latents by SVD in 4 bits, an eighth": svd_in_4_bits,
    "keys in 4 bits, values in 2": lambda text: hooked(text, uniform(4), uniform(2)),
    "rotation, 3 bits": lambda text: hooked(text, rotated(3), rotated(3)),
    "rotation, 2 bits": lambda text: hooked(text, rotated(2), rotated(2)),
}
#: Bits of a cached number of those that only this program makes; a rotation has one norm a token.
SIMULATED = {"keys in 4 bits, values in 2": 3.0, "rotation, 3 bits": 3.0, "rotation, 2 bits": 2.0}


def share_of(name: str, changed: Trained) -> float:
    """Bytes of the KV cache, of those of the standard cache in 16-bit numbers."""
    if name in SIMULATED:
        width = int(changed.options["decoder_embed_dim"])
        scales = 16 if name.startswith("rotation") else 32 * group_sizes(width)[0]
        return (SIMULATED[name] + scales / width) / 16
    return cache_share(changed.model)


# ---- losses --------------------------------------------------------------------------------------


class Loss(NamedTuple):
    """Bits ``(documents, parts)``, and target tokens, of the documents of all sets in order."""

    bits: Tensor
    tokens: Tensor

    @property
    def by_part(self) -> Tensor:
        return self.bits.sum(0) / self.tokens.sum(0)


@torch.no_grad()
def losses(model: Trained, held_out: Mapping[str, Sequence[Mapping[str, Any]]]) -> Loss:
    """The loss of every document, by position."""
    edges = torch.tensor(PARTS)
    bits, tokens = list[Tensor](), list[Tensor]()
    with in_evaluation(model.model):
        for name in SETS:
            rows = dict[int, Any]()
            for sample in held_out[name]:
                loss = cross_entropy(model.model, sample).double() / math.log(2)  # (B, T)
                counted = predicted(model.model.decoder, sample).double()
                part = torch.bucketize(torch.arange(loss.size(1)), edges, right=True)
                of_part = torch.nn.functional.one_hot(part, len(PARTS)).double()  # (T, parts)
                pairs = zip(loss @ of_part, counted @ of_part, strict=True)
                rows |= dict(zip(sample["id"].tolist(), pairs, strict=True))
            ordered = [rows[index] for index in sorted(rows)]
            bits += [row for row, _ in ordered]
            tokens += [row for _, row in ordered]
    seen = 1 + int(torch.stack(tokens).sum(0).nonzero().max())  # parts that a text reaches
    return Loss(torch.stack(bits)[:, :seen], torch.stack(tokens)[:, :seen])


def interval(rise: Tensor, tokens: Tensor) -> list[list[float]]:
    """95% of the rises of each part, and of all, under resampling of documents."""
    generator = torch.Generator().manual_seed(1)
    drawn = torch.randint(len(rise), (DRAWS, len(rise)), generator=generator)
    sums = torch.stack([x[drawn].sum(1) for x in (rise, tokens)])  # (2, draws, parts)
    sums = torch.cat([sums, sums.sum(-1, keepdim=True)], -1)
    found = (sums[0] / sums[1]).quantile(torch.tensor([0.025, 0.975], dtype=sums.dtype), 0)
    return [[round(float(x), 5) for x in pair] for pair in found.T]


def measured(text: Mapping[str, Text], change: Change, before: Mapping[str, Any]) -> dict[str, Any]:
    """What a change loses, on all texts."""
    own = text[change.calibrated]
    made = MADE[change.name](own)
    model = made.model
    after = losses(model, text["documents"].held_out)
    rise, tokens = after.bits - before["documents"].bits, after.tokens
    parts = torch.cat([rise.sum(0), rise.sum().view(1)])
    parts = parts / torch.cat([tokens.sum(0), tokens.sum().view(1)])
    sizes, bits = made.plan.sizes, made.plan.bits
    found = {
        "share": round(share_of(change.name, model), 5),
        "by_part": [round(float(x), 5) for x in parts[:-1]],
        "lost": round(float(parts[-1]), 5),
        "interval": interval(rise, tokens),
        **{
            f"lost_{name}": round(whole(model, of) - before[name], 5)
            for name, of in text.items()
            if name != "documents"
        },
        "sizes": {str(a): size for a, size in sizes.items()},
        "bits": {str(a): number for a, number in bits.items()},
    }
    if len(rise) <= KEPT:
        found["rises"] = [[round(float(x), 3) for x in row] for row in rise]
    return found


def whole(model: Trained, text: Text) -> float:
    return mean_bits(model.model, [batch for name in SETS for batch in text.held_out[name]])


# ---- translations --------------------------------------------------------------------------------

TRANSLATED = ("16 bits", "latents, an eighth", "latents, a sixteenth", "4 bits")


def translated(text: Text, name: str, number: int) -> dict[str, Any]:
    """Documents of the test set, spread evenly, translated; their breaks are no words."""
    model = text.model if name == "16 bits" else MADE[name](text).model
    every = range(len(text.model.task.dataset("test")))
    chosen = [every[i * len(every) // number] for i in range(number)]
    options = {"beam": BEAM, "max_len_a": 1.5, "max_len_b": 10}
    found = translate(
        model.model, model.task, batches(model, "test", chosen, max_sentences=16), options,
        "sentencepiece",
    )  # fmt: skip
    plain = [[" ".join(line.split(BREAK)) for line in side] for side in (found[0], found[1])]
    scores = score(plain[0], plain[1])
    return {
        "documents": number,
        "bleu": round(scores.bleu, 2), "bleu_signature": scores.bleu_signature,
        "chrf": round(scores.chrf, 2), "chrf_signature": scores.chrf_signature,
        "length_ratio": round(scores.length_ratio, 3),
        "repeated": round(repeated(plain[0]), 4),
        "repeated_in_references": round(repeated(plain[1]), 4),
        "at_limit": found.at_limit,
        "breaks": [_breaks(found.hypotheses), _breaks(found.targets)],
    }  # fmt: skip


def _breaks(lines: Sequence[str]) -> int:
    return sum(line.count(BREAK) for line in lines)


def repeated(lines: Sequence[str], n: int = 4) -> float:
    """The share of n-grams that stand in their document before."""
    again = every = 0
    for line in lines:
        words = line.split()
        grams = [*zip(*(words[i:] for i in range(n)), strict=False)]
        every += len(grams)
        again += len(grams) - len({*grams})
    return again / max(1, every)


# ---- the program ---------------------------------------------------------------------------------


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="results/long.json")
    parser.add_argument("--model", required=True, metavar="NAME=CHECKPOINT")
    for name in TEXTS:
        needed = name == "documents"
        parser.add_argument(f"--{name}", type=Path, required=needed, help="data folder")
    parser.add_argument("--block", type=int, metavar="N", help="tokens, of a language model")
    parser.add_argument("--calibration", type=int, default=CALIBRATION, help="sentences")
    parser.add_argument("--translate", type=int, metavar="N", help="translate N documents instead")
    parser.add_argument("--only", default="", metavar="WORDS", help="names that contain this")
    args = parser.parse_args(argv)
    if args.block is not None and args.sentences is not None:
        parser.error("--block makes the short texts: leave --sentences out")
    name, _, checkpoint = args.model.partition("=")
    folders = {which: folder for which in TEXTS if (folder := getattr(args, which)) is not None}
    numbers = (args.calibration, args.block, args.translate)
    file = File(args.file)
    made = origin("long.py", argv, Path(checkpoint), *folders.values(), *numbers)
    text = {which: Text(Path(checkpoint), of, args.calibration) for which, of in folders.items()}
    if args.block is not None:
        short = {"tokens_per_sample": args.block}
        text["sentences"] = Text(Path(checkpoint), args.documents, args.calibration, **short)
    if "sentences" in text:
        longer = text["documents"].length / text["sentences"].length
        text["documents"].number = max(1, round(args.calibration / longer))
    if args.translate:
        for row in TRANSLATED:
            keys = {"model": name, "name": row}
            if args.only in row and not file.is_made("translations", keys, made["made_from"]):
                found = translated(text["documents"], row, args.translate)
                file.put("translations", keys, {**keys, **found, **made})
                print(f"{name}: {row}: {found}", flush=True)
        return 0
    before: dict[str, Any] = {name: whole(of.model, of) for name, of in text.items()}
    own = losses(text["documents"].model, text["documents"].held_out)
    about = {
        **{f"{name}_bits": round(bits, 5) for name, bits in before.items()},
        "parts": PARTS[: len(own.by_part)],
        "d": int(text["documents"].model.options["decoder_embed_dim"]),
        "parameters": sum(p.numel() for p in text["documents"].model.model.parameters()),
        "by_part": [round(float(x), 5) for x in own.by_part],
        "texts": len(own.tokens),
    }
    before["documents"] = own
    if len(own.tokens) <= KEPT:
        about["tokens"] = own.tokens.int().tolist()
    file.put("models", {"model": name}, {"model": name, **about, **made})
    for change in changes(text):
        keys = {"model": name, "name": change.name, "calibrated": change.calibrated}
        if file.is_made("rows", keys, made["made_from"]) or args.only not in change.name:
            continue
        found = measured(text, change, before)
        file.put("rows", keys, {**keys, **found, **made})
        print(f"{name}: {change}: {found['by_part']}, {found['lost']}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
