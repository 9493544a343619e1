"""What is measured of a changed model, by the names that rows have: see :mod:`.rows`.

A measure is a function of a :class:`Case` and of the arguments of the row; it returns what the row
has, or the records of a row that has several.  Those of :data:`RANDOM` need no trained model.
"""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from fairseq.data.data_utils import post_process

from collab_common.errors import UserError
from collab_common.files import sha256
from collab_lab import translate
from collab_lab.export.vocabulary import vocabulary
from collab_lab.mathematics.head_prices import head_prices
from collab_lab.metrics.cost import totals
from collab_lab.metrics.generate import words_of
from collab_lab.metrics.loss import mean_bits
from collab_lab.metrics.marks import subword_marks
from collab_lab.metrics.translation_scores import score
from collab_lab.shrinking.apply import apply_cuts
from collab_lab.shrinking.by_hand import conversion
from collab_lab.shrinking.shape import whole_costs
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import dataset_of
from results.changes import KINDS, taken
from results.live_slots import forced, live_documents
from results.long import about_documents, by_part, documents, share
from results.one_copy import decoding_steps
from results.onnx_speed import engines
from results.records import Content
from results.rounded import attention
from results.seconds import command, steps
from results.what_cuts_buy import bought, predicted_seconds
from results.work import Case, Made, Text


def listed(numbers: Mapping[Any, Any]) -> dict[str, Any]:
    """Numbers by the names of attentions."""
    return {str(site): number for site, number in numbers.items()}


# ---- losses and prices ---------------------------------------------------------------------------


def losses(case: Case) -> Content:
    """The rises of the losses on the validation and the test set."""
    text, model = case.work.main, case.made.model
    after = {name: mean_bits(model.model, of) for name, of in text.held_out.items()}
    rises = {name: round(after[name] - text.bits[name], 6) for name in after}
    return {"lost": rises["valid"], "lost_test": rises["test"]}


def price(case: Case) -> Content:
    """The predicted rise."""
    return {"price": round(case.made.plan.price, 6)}


def unpriced(case: Case) -> Content:
    """No rise is predicted."""
    return {"price": None}


def predicted(case: Case) -> Content:
    """The predicted rise, if there is one, and that of the loss on the validation set."""
    text, made = case.work.main, case.made
    lost = mean_bits(made.model.model, text.held_out["valid"]) - text.bits["valid"]
    return {"price": made.plan.price if made.plan.prices else None, "lost": lost}


def kept(case: Case) -> Content:
    """The rise on the calibration sentences, and what a plan keeps."""
    made, plan = case.made, case.made.plan.to_json()
    return {
        "rise": round(made.rise, 6),
        "shares": {name: round(share, 4) for name, share in made.shares.items()},
        "prices": {name: round(part, 6) for name, part in made.plan.prices.items()},
        "heads": {type_: [*map(len, of)] for type_, of in plan["heads"].items()},
        "units": {name: len(units) for name, units in plan["units"].items()},
    }


def sizes(case: Case) -> Content:
    """Sizes of the new heads."""
    return {"sizes": listed(case.made.plan.sizes)}


def bits(case: Case, name: str = "bits") -> Content:
    """Bits of the rounded caches."""
    return {name: listed(case.made.plan.bits)}


def retained(case: Case) -> Content:
    """The heads that stay."""
    return {"retained": case.made.plan.retained}


def cache(case: Case) -> Content:
    """The share of the KV cache that is left."""
    left = totals(case.made.model.model)["cache"] / whole_costs(case.work.main.model).cache
    return {"cache": round(left, 6)}


def alone(case: Case, kind: str, parts: Sequence[int]) -> Iterator[Content]:
    """Every attention by itself, at parts of its exact size: a record each."""
    text, cut = case.text, KINDS[kind]
    for one in text.found.attentions:
        for part in parts:
            of = {one: max(1, cut.exact_size(one.module) // part)}
            made = Made(*apply_cuts(text.found, conversion(text.model, {cut: of})))
            yield {"type": one.type, "sizes": listed(of), **predicted(case._replace(made=made))}


def heads_alone(case: Case, every: int) -> Iterator[Content]:
    """Single heads, one of ``every``, removed by themselves: a record each."""
    for one, statistics in case.text.found.attentions.items():
        prices = head_prices(one.module, statistics)
        for head in range(0, one.module.num_heads, every):
            made = taken(case.text, {one: [(prices[head], head)]}, 1, True)
            found = predicted(case._replace(made=made))
            yield {"type": one.type, "layer": one.layer, "head": head, **found}


# ---- the trained model ---------------------------------------------------------------------------


def d(case: Case) -> Content:
    """The width of the trained model."""
    return {"d": case.work.main.width}


def base(case: Case) -> Content:
    """The trained model's own loss on the validation set."""
    return {"base": round(case.work.main.bits["valid"], 6)}


def size(case: Case) -> Content:
    """What the trained model is called in tables: ``d = 128``."""
    layers = layers_of(case.work.main.model)
    return {"size": f"d = {case.work.main.width}" + f", {layers} layers" * (layers == "2+2")}


def layers_of(model: Trained) -> str:
    """``2+2``: layers of the encoder and of the decoder."""
    return "+".join(str(len(model.attentions[t])) for t in ("encoder", "decoder"))


def about(case: Case) -> Content:
    """The trained model: its sizes, and its losses on both sets."""
    text = case.work.main
    return {
        "d": text.width,
        "ffn_dim": int(text.model.options["decoder_ffn_embed_dim"]),
        "layers": layers_of(text.model),
        "parameters": parameters_of(text.model),
        **{f"{name}_bits": round(own, 6) for name, own in text.bits.items()},
        "sentences": text.number,
    }


def about_group(case: Case) -> Content:
    """The trained model in a table that averages models of a group."""
    text, group = case.work.main, case.work.group
    if group is None:
        raise UserError("needs --group", text.checkpoint)
    return {
        "group": group,
        "data": text.data.name,
        "valid_bits": round(text.bits["valid"], 5),
        "checkpoint_sha256": sha256(text.checkpoint),
    }


def parameters_of(model: Trained) -> int:
    return sum(p.numel() for p in model.model.parameters())


# ---- translations of the validation set: changed.json --------------------------------------------


def translations(case: Case) -> Content:
    """How many translations change, and their scores."""
    text, model = case.work.main, case.made.model
    before = own_translations(text)
    return compared(text, before if model is text.model else translated(model), before)


def translations_in_int8(case: Case) -> Content:
    """The same of CTranslate2's int8, whose loss is not known."""
    text = case.work.main
    found = compared(text, in_int8(text.model), own_translations(text))
    return {**found, "lost": None, "lost_test": None}


def compared(text: Text, after: Sequence[str], before: Sequence[str]) -> Content:
    """Translations next to those of the trained model, and to the references."""
    scores = score([*after], text_of(text.model, "target_lang"))
    return {
        "changed": round(fmean(a != b for a, b in zip(before, after, strict=True)), 4),
        "sentences": len(before),
        "bleu": round(scores.bleu, 2), "bleu_signature": scores.bleu_signature,
        "chrf": round(scores.chrf, 2), "chrf_signature": scores.chrf_signature,
    }  # fmt: skip


def text_of(model: Trained, side: str) -> list[str]:
    """Ordinary text of the validation set: ``source_lang`` or ``target_lang``."""
    raw = Path(model.cfg.task.data) / "raw" / f"valid.{model.cfg.task[side]}"
    return raw.read_text(encoding="utf-8").splitlines()


@functools.lru_cache(1)
def own_translations(text: Text) -> list[str]:
    """The translations of the model itself."""
    return translated(text.model)


def translated(model: Trained) -> list[str]:
    """The translations of the validation set, with beam 5."""
    return translate(model, text_of(model, "source_lang"))


def in_int8(model: Trained) -> list[str]:
    """The translations of the exported model, its weights rounded when it is loaded."""
    if find_spec("ctranslate2") is None:
        raise UserError("needs the package ctranslate2", "int8")
    engine, words = import_module("collab_lab.export.ct2"), vocabulary(model)
    dataset = dataset_of(model, "valid")
    sources = [words_of(words.source, dataset[i]["source"]) for i in range(len(dataset))]
    longest = max(map(len, sources))
    options = {**engine.search_options(model.model, longest), "max_batch_size": 64}
    with tempfile.TemporaryDirectory() as folder:
        engine.write(model, words, Path(folder))
        translator = engine.Translator(folder, compute_type="int8", intra_threads=1)
        results = translator.translate_batch(sources, **options)
    subwords = subword_marks(words.target.symbols)
    return [post_process(" ".join(result.hypotheses[0]), subwords) for result in results]


MEASURES: dict[str, Callable[..., Any]] = {
    measure.__name__: measure
    for measure in (
        losses, price, unpriced, predicted, kept, sizes, bits, retained, cache, alone, heads_alone,
        d, base, size, about, about_group, translations, translations_in_int8,
        about_documents, by_part, documents, share, command, steps, forced,
        live_documents,
    )
}  # fmt: skip
#: Measures of trained models that are seconds, as all of :data:`RANDOM` are.
SECONDS = {measure.__name__ for measure in (command, steps, forced, live_documents)}
RANDOM: dict[str, Callable[..., Any]] = {
    measure.__name__: measure
    for measure in (decoding_steps, attention, bought, predicted_seconds, engines)
}
