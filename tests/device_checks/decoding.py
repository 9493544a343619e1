"""Translations by beam search on the device, beside those of fairseq's transformer on the CPU."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

import torch

from fairseq_collab.bench.generate import Case, Translator, count_ties, sentences
from fairseq_collab.bench.models import STOCK, Variant, random_pair, variants
from fairseq_collab.bench.settings import BEAM, Settings
from fairseq_collab.bench.work import random_task

from .core import Check, Place, expect

#: How far log-probabilities of a word may be apart: float32's decide between equals.
TIE = 1e-4
#: In half precision other words may be found, with scores that are as exact as the format.
ROUGHLY = {"float16": 0.05, "bfloat16": 0.3}
SEED = 1


def checks(place: Place) -> Iterator[Check]:
    """Every model in float32, with beams and without; on a GPU in half precision, too."""
    for variant in variants((4,) if place.quick else (1, 2, 4, 8)):
        for beam in (BEAM,) if place.quick else (1, BEAM):
            run = partial(same_words, variant, beam, place)
            yield Check(f"decoding {variant.name} float32, beam {beam}", run)
        for dtype in ROUGHLY if place.device == "cuda" else ():
            run = partial(true_scores, variant, dtype, place)
            yield Check(f"decoding {variant.name} {dtype}, beam {BEAM}", run)


def case_of(beam: int, place: Place) -> tuple[str, Case]:
    """The preset, and one batch of translations of one length."""
    preset, length = ("tiny", 8) if place.quick else ("multi30k", 20)
    size = 4 if place.quick else 16
    return preset, Case(beam, size, size, length, (0, 1))


def translators(variant: Variant, beam: int, place: Place, dtype: str = "float32") -> Any:
    """fairseq's model on the CPU, ours on the device, and the batch of each."""
    preset, case = case_of(beam, place)
    task = random_task(preset, case.sentences, SEED)
    pair = random_pair(variant, preset, task, SEED)
    on_cpu, here = Settings(device="cpu"), Settings(device=place.device, dtype=dtype)
    models = ((pair.stock.model, on_cpu), (pair.ours.model, here))
    found = [Translator(model, task, case, settings) for model, settings in models]
    return found, [sentences(task, case, settings)[0] for _, settings in models]


def same_words(variant: Variant, beam: int, place: Place) -> str:
    """The best translations; such that are equally good are counted."""
    (stock, ours), (on_cpu, here) = translators(variant, beam, place)
    pair = {f"{STOCK} on the CPU": lambda _: stock(on_cpu), variant.name: lambda _: ours(here)}
    ties = count_ties(pair, [None], TIE)
    return f"{len(on_cpu['id'])} translations equal to {STOCK}'s on the CPU, {ties} of them ties"


@torch.no_grad()
def true_scores(variant: Variant, dtype: str, place: Place) -> str:
    """The score that a search in half precision finds is that of its words in float32."""
    (stock, ours), (batch, here) = translators(variant, BEAM, place, dtype)
    eos = ours.task.target_dictionary.eos()
    apart = 0.0
    for number, (best, *_) in enumerate(ours(here)):
        tokens = best["tokens"].cpu()  # (T), closed by the end of the sentence
        previous = torch.cat([torch.tensor([eos]), tokens[:-1]]).unsqueeze(0)
        source = {name: batch["net_input"][name][number : number + 1] for name in SOURCE}
        logits, _ = stock.model(**source, prev_output_tokens=previous)
        words = logits[0].log_softmax(dim=-1).gather(1, tokens.unsqueeze(1))  # (T, 1)
        apart = max(apart, abs(float(words.mean()) - float(best["score"])))
    bound = ROUGHLY[dtype]
    expect(apart <= bound, f"a score is {apart:.2g} a word from float32's, at most {bound}")
    return f"scores at most {apart:.1g} a word from float32's, of at most {bound}"


SOURCE = ("src_tokens", "src_lengths")
