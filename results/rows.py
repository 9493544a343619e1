"""The rows of all tables, as data: what is changed in which model, and what is measured of it.

A new row is a :class:`Row` in the list of its table.  Changes are functions of :mod:`.changes`,
measures those of :mod:`.measures`, each with its arguments.  Tables are called as their files:
``results/NAME.json``.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from typing import Any, NamedTuple

from results.ladder import A_WORD
from results.ladder import STEPS as REFIT_STEPS
from results.onnx_speed import LATENT_HEADS
from results.what_cuts_buy import ALL_ENGINES, ENGINES
from results.work import DOCUMENTS, TEXTS


class Call(NamedTuple):
    """A function by its name, and its arguments."""

    name: str
    arguments: dict[str, Any]


def call(name: str, /, **arguments: Any) -> Call:
    return Call(name, arguments)


class Row(NamedTuple):
    """A row of a table.

    Attributes:
        part: the list of the file that it is in.
        names: what it is called there, next to the name of its model.
        change: of the trained model; None for models with random weights, which need none.
        measures: what is measured.
        calibration: the text that the change is calibrated on, a name of :data:`.work.TEXTS`.
        each: the names of its records, if it has several.
    """

    part: str
    names: Mapping[str, Any]
    change: Call | None
    measures: tuple[Call, ...]
    calibration: str = DOCUMENTS
    each: tuple[str, ...] = ()


def calls(*names: str) -> tuple[Call, ...]:
    return tuple(call(name) for name in names)


ITSELF = call("itself")
ABOUT = Row("models", {}, ITSELF, calls("about"))


# ---- cache.json, at_size.json, shrink.json: what cuts of trained models lose ---------------------

#: Shares of the KV cache at which rounded heads, grouped queries and latents are compared.
EIGHT_BITS, FOUR_BITS = 0.53125, 0.28125
#: Shares of the layers' parameters, and of heads: what ``results/shrink.md`` compares.
PARAMETERS = (0.825, 0.66, 0.49, 0.33)
HEADS = (5 / 6, 2 / 3, 1 / 2, 1 / 3, 1 / 6)


def cut(what: str, name: str, share: float, bits: str | None, *of_model: str) -> Row:
    """A smaller KV cache; of heads the share that goes."""
    names = {"what": what, "name": name, "share": share, "bits_option": bits}
    found = calls("d", *of_model, "price", "losses")
    if what == "heads":
        return Row("rows", names, call("removed", share=share), (*found, call("retained")))
    change = call("smaller", cache=share, kinds=[what], cache_bits=bits)
    return Row("rows", names, change, (*found, *calls("sizes", "bits")))


CACHE = [
    cut(what, name, share, bits, "base")
    for what, name, bits, shares in (
        ("latent", "latent, widths and bits", "auto",
         (1 / 2, 1 / 4, 3 / 16, 1 / 8, 3 / 32, 1 / 16, 1 / 24, 1 / 32)),
        ("latent", "latent, widths alone", "none", (1 / 4, 1 / 8, 1 / 16)),
        ("unchanged", "standard heads, bits alone", "auto", (EIGHT_BITS, 1 / 2, FOUR_BITS)),
        ("grouped-query", "grouped query, widths and bits", "auto", (1 / 2, 1 / 4, 1 / 8)),
        ("grouped-query", "grouped query, groups alone", "none", (1 / 2, 1 / 4)),
        ("heads", "heads removed", None, HEADS[1:]),
    )
    for share in shares
]  # fmt: skip
AT_SIZE = [
    cut(what, name, share, bits, "size")
    for what, name, bits, shares in (
        ("latent", "latents, widths and bits", "auto", (1 / 4, 1 / 8, 1 / 16)),
        ("latent", "latents, widths alone", "none", (1 / 4, 1 / 8)),
        ("unchanged", "8 bits alone", "auto", (EIGHT_BITS,)),
        ("unchanged", "4 bits alone", "auto", (FOUR_BITS,)),
        ("grouped-query", "grouped query, groups and bits", "auto", (1 / 4,)),
        ("grouped-query", "grouped query, groups alone", "none", (1 / 2, 1 / 4)),
        ("heads", "heads removed", None, HEADS[1:4]),
    )
    for share in shares
]


def planned(what: str, name: str, share: float, change: Call, price: str = "price") -> Row:
    """What ``shrink`` makes, next to other ways to as small a model."""
    names = {"what": what, "name": name, "share": share, "bits_option": None}
    return Row("rows", names, change, calls("d", price, "kept", "losses"))


#: Ways to a share of the parameters: change, the name of its share, more arguments, price.
WAYS: dict[str, tuple[str, str, dict[str, Any], str]] = {
    "heads and units": ("smaller", "parameters", {}, "price"),
    "heads alone": ("smaller", "parameters", {"only": ["heads"]}, "price"),
    "units alone": ("smaller", "parameters", {"only": ["units"]}, "price"),
    "equal shares a layer": ("equal_shares", "share", {}, "price"),
    "masks by Fisher": ("masks", "share", {}, "unpriced"),
}
SHRINK = [
    planned("parameters", name, share, call(change, **{of: share}, **more), price)
    for share in PARAMETERS
    for name, (change, of, more, price) in WAYS.items()
]
SHRINK += [
    *(planned("cache", "cache", share, call("smaller", cache=share)) for share in (1 / 8, 1 / 16)),
    planned("both", "cache of an eighth", 0.66, call("smaller", cache=0.125, parameters=0.66)),
    planned("ct2", "heads and units for CTranslate2", 0.66,
            call("smaller", parameters=0.66, engine="ct2")),
    *(planned("heads", "heads", share, call("smaller", heads=share)) for share in HEADS),
]  # fmt: skip


# ---- rivals in these files: pooled heads, SVD, steps of the refit, choices of heads --------------

SHARES = (1 / 6, 1 / 3, 1 / 2, 2 / 3, 5 / 6)
#: How heads are chosen: their names in the table.
CHOICES = {
    "obs": REFIT_STEPS["and fc2"],
    "pairs": "pairs instead of prices",
    "importance": "importance instead of prices",
}
#: Shares of the KV cache, by kind; ``collab`` is called ``own``.
CACHES = {"grouped-query": (1 / 2, 1 / 4), "latent": (1 / 4, 1 / 8), "own": (0.625, 0.5625)}
CONVERTED = ("plain", "target of the trained model", "with the residual", "and fc2")
SENTENCES = (30, 100, 300, 1000, 3000)
RIDGES: tuple[float | str, ...] = (1e-4, 1e-3, 0.01, 0.03, 0.1, 1.0, A_WORD)


def step(
    kind: str, what: str, choice: str | None, share: float, ridge: float | str = 0.01,
    sentences: int = 1000, part: str = "ladder", **name: str,
) -> Row:  # fmt: skip
    """A model at a step of the refit."""
    names = {"kind": kind, "what": what, **name, "choice": choice, "share": round(share, 6)}
    names |= {"ridge": ridge, "sentences": sentences}
    how: dict[str, Any] = {"ridge": ridge, "sentences": sentences, "share": share}
    how |= {"choice": choice} if choice else {"kind": "collab" if kind == "own" else kind}
    change = call("step", step=what, **how)
    return Row(part, names, change, calls("d", "losses"))


CACHE += [
    *(Row("pooled", {"kind": "mean-pooled grouped query", "share": share},
          call("pooled", share=share), calls("d", "losses"))
      for share in (1 / 2, 1 / 4, 1 / 8)),
    *(step("heads", what, "obs", share, name=name)
      for what, name in REFIT_STEPS.items() if what != "and fc2" for share in SHARES),
    *(step("heads", "and fc2", choice, share, name=name)
      for choice, name in CHOICES.items() for share in SHARES),
    *(step(kind, what, None, share)
      for kind, shares in CACHES.items() for share in shares for what in CONVERTED),
    *(step("heads", "and fc2", "obs", 0.5, ridge, sentences)
      for sentences, ridge in product(SENTENCES, RIDGES)
      if ridge in (0.001, 0.1, A_WORD) or (sentences == 1000) != (ridge == 0.01)),
]  # fmt: skip
AT_SIZE += [
    *(Row("rows", {"what": "svd", "name": "latents by SVD", "bits_option": "none", "share": share},
          call("svd_latents", share=share), calls("d", "size", "unpriced", "losses", "sizes"))
      for share in (1 / 4, 1 / 8)),
    *(step("heads", "and fc2", choice, share, part="choices")
      for share in SHARES for choice in CHOICES),
]  # fmt: skip


# ---- changed.json: how many translations a smaller model changes ---------------------------------


def translated(name: str, change: Call, *measures: str) -> Row:
    return Row("rows", {"name": name}, change, calls("d", *measures))


CHANGED = [
    translated(name, change, "translations", "losses")
    for name, change in {
        "the model itself": ITSELF,
        "standard heads, 8 bits": call("smaller", cache=EIGHT_BITS, kinds=["unchanged"]),
        "latents, exact": call("smaller", cache=0.5),
        "standard heads, 4 bits": call("smaller", cache=FOUR_BITS, kinds=["unchanged"]),
        "cache, a quarter": call("smaller", cache=0.25),
        "cache, an eighth": call("smaller", cache=0.125),
        "cache, a sixteenth": call("smaller", cache=0.0625),
        "grouped query, a quarter": call("smaller", cache=0.25, kinds=["grouped-query"]),
        "grouped query, half, for CTranslate2": call("smaller", cache=0.5, engine="ct2"),
        "a third of the heads": call("smaller", heads=0.67),
        "a third of the layers' parameters": call("smaller", parameters=0.66),
        "a third of them, for CTranslate2": call("smaller", parameters=0.66, engine="ct2"),
        "another seed": call("another_seed"),
    }.items()
]
CHANGED.append(translated("in CTranslate2's int8", ITSELF, "translations_in_int8"))


# ---- prices.json: how well prices predict, and what the weighting of errors is worth -------------

#: Shares of the KV cache of decoder and cross-attention, by kind: keys are half of it.
OWN = "shared key, own queries"
PRICED = {
    "latent": (0.5, 0.25, 0.1875, 0.125),
    OWN: (0.75, 0.625, 0.5625),
    "separate keys": (0.75, 0.625, 0.5625),
    "grouped query": (0.5, 0.25),
}
PREDICTED = calls("sizes", "predicted")
PRICES = [
    *(Row("rows", {"what": what, "kind": kind, "cache": share},
          call(what, kind=kind, share=share), PREDICTED)
      for kind, shares in PRICED.items() for share in shares for what in ("spread", "even")
      if (what, kind) != ("spread", "separate keys")),  # which have one size in all layers
    *(Row("rows", {"what": "heads", "kind": "heads removed", "choice": choice,
                   "removed": round(share, 6)},
          call("unfitted", choice="obs" if choice == "price" else choice, share=share),
          calls("predicted"))
      for share in (1 / 6, 1 / 3, 1 / 2, 2 / 3)
      for choice in ("price", "importance", "random 1", "random 2", "random 3")),
    *(Row("rows", {"what": "alone", "kind": kind}, ITSELF,
          (call("alone", kind=kind, parts=(2, 4, 8)),), each=("type", "sizes"))
      for kind in ("latent", OWN, "grouped query")),
    Row("rows", {"what": "alone", "kind": "heads removed"}, ITSELF,
        (call("heads_alone", every=3),), each=("type", "layer", "head")),
    *(Row("rows", {"what": "ladder", "kind": kind, "weighting": weighting, "share": 1 / part},
          call("weighted", kind=kind, weighting=weighting, part=part), PREDICTED)
      for weighting in ("weights", "inputs", "both", "read", "fisher")
      for kind in ("latent", OWN, "full", "diagonal") for part in (4, 8)),
    Row("models", {}, ITSELF, calls("about_group")),
]  # fmt: skip


# ---- long.json, captions.json: a smaller KV cache in long texts ----------------------------------

#: Caches, by their names in tables: how they are made, and arguments of their share.
LONG_CACHES: dict[str, tuple[Call, dict[str, Any]]] = {
    "8 bits": (call("smaller", cache=EIGHT_BITS, kinds=["unchanged"]), {}),
    "4 bits": (call("smaller", cache=FOUR_BITS, kinds=["unchanged"]), {}),
    "the layer's input in 4 bits": (call("converted", to="latent", parts=1, bits=4), {}),
    "latents, a quarter": (call("smaller", cache=0.25, kinds=["latent"]), {}),
    "latents, an eighth": (call("smaller", cache=0.125, kinds=["latent"]), {}),
    "latents, a sixteenth": (call("smaller", cache=0.0625, kinds=["latent"]), {}),
    "grouped query, a quarter": (call("converted", to="grouped-query", parts=1 / 4), {}),
    # 4.5 bits a number, its share of the scales included: 0.444 of the numbers are an eighth.
    "latents by SVD in 4 bits, an eighth":
        (call("svd_latents", share=0.125 * 16 / 4.5, bits=4), {}),
    "keys in 4 bits, values in 2":
        (call("simulated", how="uniform", keys=4, values=2), {"bits": 3.0}),
    "rotation, 3 bits":
        (call("simulated", how="rotated", keys=3, values=3), {"bits": 3.0, "norms": True}),
    "rotation, 2 bits":
        (call("simulated", how="rotated", keys=2, values=2), {"bits": 2.0, "norms": True}),
}  # fmt: skip
FLOAT32, EIGHTH, SIXTEENTH = "float32", "latents, an eighth", "latents, a sixteenth"
#: Caches whose steps are timed.
TIMED: dict[str, Call] = {
    FLOAT32: ITSELF,
    **{name: LONG_CACHES[name][0] for name in ("8 bits", "4 bits", EIGHTH)},
}


def by_part(name: str, calibrated: str, ends: tuple[int, ...]) -> Row:
    """A cache, calibrated on a text."""
    change, share = LONG_CACHES[name]
    found = (call("share", **share), call("by_part", ends=ends), *calls("sizes", "bits"))
    return Row("rows", {"name": name, "calibrated": calibrated}, change, found, calibrated)


def long(ends: tuple[int, ...], number: int) -> dict[str, list[Row]]:
    """Tables of long texts.

    Args:
        ends: of the parts of a translation, in target tokens.
        number: of documents that are translated.
    """
    about = Row("models", {}, ITSELF, (call("about_documents", ends=ends),))
    rows = [by_part(name, DOCUMENTS, ends) for name in LONG_CACHES]
    others = [by_part(name, text, ends)
              for text in TEXTS[1:] for name in (EIGHTH, SIXTEENTH, "4 bits")]  # fmt: skip
    translated = [
        Row("translations", {"name": name}, change, (call("documents", number=number),))
        for name, change in [
            ("16 bits", ITSELF),
            *((name, LONG_CACHES[name][0]) for name in (EIGHTH, SIXTEENTH, "4 bits")),
        ]
    ]
    return {"long": [about, *rows, *others, *translated], "captions": [about, *rows]}


def long_steps(batches: tuple[int, ...], length: int) -> list[Row]:
    """Seconds of a step and memory of long translations."""
    return [
        Row("rows", {"name": name, "batch": batch}, change,
            (call("steps", batch=batch, length=length),))
        for name, change in TIMED.items() for batch in batches
    ]  # fmt: skip


# ---- one_copy.json: one latent of the encoder's output for all cross-attentions ------------------

LATENTS = {"a latent a layer": False, "one for all layers": True}
ONE_COPY = [
    *(Row("losses", {"name": name, "bits": bits, "share": None},
          call("latents", one=one, bits=bits), calls("cache", "price", "losses"))
      for name, one in LATENTS.items() for bits in (0, 8, 4)),
    *(Row("losses", {"name": name, "bits": None, "share": share},
          call("latents", one=one, share=share),
          (*calls("cache", "price", "losses", "sizes"), call("bits", name="bits_of")))
      for share in (1 / 8, 1 / 16) for name, one in LATENTS.items()),
    ABOUT,
]  # fmt: skip


def decoding_steps(
    preset: str, vocabulary: int, d: int, layers: tuple[int, ...], lengths: tuple[int, ...],
    steps: int, turns: int,
) -> list[Row]:  # fmt: skip
    """Steps of models with random weights."""
    how = {"preset": preset, "vocabulary": vocabulary, "d": d, "longest": lengths[-1]}
    how |= {"steps": steps, "number": turns}
    return [
        Row("steps", {"layers": number, "length": length, "d": d}, None,
            (call("decoding_steps", **how, layers=number, length=length),))
        for number in layers for length in lengths
    ]  # fmt: skip


# ---- tables of seconds ---------------------------------------------------------------------------


def rounded(
    slots: tuple[int, ...], threads: tuple[int, ...], turns: int, least: float
) -> list[Row]:
    """Attention over a rounded KV cache."""
    kinds = ("standard heads", "grouped query, 2 heads", "latents, a quarter")
    names = ("kind", "beam", "slots", "threads")
    return [
        Row("records", dict(zip(names, case, strict=True)), None,
            (call("attention", **dict(zip(names, case, strict=True)), turns=turns, least=least),))
        for case in product(kinds, (1, 5), slots, threads)
    ]  # fmt: skip


#: Cuts of the KV cache, and some cuts of heads and units, of what_cuts_buy.json.
CACHE_CUTS = (
    *("keys and values 1/2", "keys and values 1/4", "cache in 8 bits", "cache in 4 bits"),
    *("latents 1/4", "latents 1/8, 4 bits"),
)
SOME_CUTS = ("4 of 8 heads", "F 512", "4 heads, F 512", "plan, 66%", "3 decoder layers")


def bought(
    preset: str, vocabulary: int, length: int, turns: dict[int, int],
    names: tuple[str, ...] = (), predicted: bool = False, engines: tuple[str, ...] = ENGINES,
) -> list[Row]:  # fmt: skip
    """What cuts buy in seconds.

    Args:
        turns: by the number of sentences of a batch.
        names: of the cuts; default: all that are not of the cache.
        predicted: whether to predict it, too.
        engines: in which the models are timed.
    """
    rows = []
    for batch, number in turns.items():
        case = {"vocabulary": vocabulary, "length": length, "batch": batch}
        of_all = call("bought", preset=preset, **case, names=names, engines=engines, turns=number)
        more = [call("predicted_seconds", preset=preset, **case)] * predicted
        rows.append(Row("records", case, None, (of_all, *more)))
    return rows


def tools_time(sizes: tuple[int, ...], layers: int, sentences: int, checked: str) -> list[Row]:
    """What this project's own commands take.

    Args:
        sizes: d of models with random weights, next to the trained one.
        sentences: calibration sentences.
        checked: the options of an export; translations of random weights have no end.
    """
    commands = {
        "prices": "prices --out {out}",
        "shrink, parameters": "shrink --parameters=0.66 --out {out}.pt",
        "shrink, cache": "shrink --cache=0.125 --out {out}.pt",
        "shrink, both": "shrink --cache=0.125 --parameters=0.66 --out {out}.pt",
        "shrink, heads": "shrink --heads=0.67 --out {out}.pt",
        "export --check": f"export {checked} --out {{out}}",
    }
    models: list[tuple[dict[str, str], Call]] = [({}, ITSELF)]
    models += [({"model": f"d = {d}"}, call("untrained", d=d, layers=layers)) for d in sizes]
    return [
        Row("rows", {**model, "name": name}, change,
            (call("command", words=words, sentences=sentences),))
        for model, change in models for name, words in commands.items()
        if not (model and name == "export --check")
    ]  # fmt: skip


def onnx_speed(
    preset: str, vocabulary: int, cases: dict[tuple[int, int], int],
    latents: tuple[str, ...] = LATENT_HEADS,
) -> list[Row]:  # fmt: skip
    """One model in ONNX Runtime and in other engines.

    Args:
        cases: turns, by sentences and tokens.
        latents: heads that are also timed, in the longest case.
    """
    lengths = tuple(sorted({tokens for _, tokens in cases}))
    of_all = {"preset": preset, "lengths": lengths, "latents": latents}
    rows = []
    for (sentences, tokens), turns in cases.items():
        case = {"vocabulary": vocabulary, "sentences": sentences, "tokens": tokens}
        timed = call("engines", **of_all, **case, turns=turns)
        rows.append(Row("rows", case, None, (timed,), each=("engine", "heads", "threads")))
    return rows


def live_slots(lengths: tuple[int, ...], sentences: int, turns: int, documents: int) -> list[Row]:
    """A search that keeps only the slots that a beam sees.

    Args:
        lengths: of forced translations.
        documents: of the test set, with their own lengths.
    """
    how = {"sentences": sentences, "turns": turns}
    return [
        *(Row("forced", {"name": name, "length": length}, change,
              (call("forced", length=length, **how, stock=name == FLOAT32),))
          for name, change in TIMED.items() for length in lengths),
        Row("documents", {"name": FLOAT32}, ITSELF, (call("live_documents", number=documents),)),
    ]  # fmt: skip


# ---- all tables ----------------------------------------------------------------------------------


def tables(tiny: bool = False) -> dict[str, list[Row]]:
    """The rows of each table.

    Args:
        tiny: with sizes of seconds, for tests.
    """
    found = {
        "cache": CACHE,
        "at_size": [*AT_SIZE, ABOUT],
        "shrink": [*SHRINK, ABOUT],
        "changed": [*CHANGED, ABOUT],
        "prices": PRICES,
    }
    if tiny:
        cases = {(1, 5): 2, (2, 5): 2, (1, 9): 2}
        return found | {
            **long((2, 4, 1024), 5),
            "long_steps": long_steps((1, 2), 9),
            "one_copy": [*ONE_COPY, *decoding_steps("tiny", 50, 32, (1, 2), (3, 5), 3, 2)],
            "rounded": rounded((7, 20), (1,), 2, 1e-6),
            "what_cuts_buy": [
                *bought("tiny", 60, 5, {1: 2}, predicted=True),
                *bought("tiny", 40, 6, {1: 2}, CACHE_CUTS),
                *bought("tiny", 40, 5, {1: 2}, ("4 of 8 heads",), engines=ALL_ENGINES),
            ],
            # Those of one model: starts take seconds.
            "tools_time": tools_time((16,), 1, 20, "--format fairseq")[4:7],
            "onnx_speed": onnx_speed("tiny", 60, cases, LATENT_HEADS[:1]),
            "live_slots": live_slots((40,), 3, 2, 3),
        }
    base = "wmt_en_de"
    return found | {
        **long((64, 256, 1024), 20),
        "long_steps": long_steps((1, 16), 1000),
        "one_copy": [*ONE_COPY, *decoding_steps(base, 8_000, 512, (2, 3, 6), (30, 600), 10, 3)],
        "rounded": rounded((512, 2048), (1, 2), 30, 0.01),
        "what_cuts_buy": [
            *bought(base, 32_000, 30, {1: 8, 32: 3}, predicted=True),
            *bought(base, 8_000, 512, {1: 3}, CACHE_CUTS),
            *bought(base, 8_000, 30, {1: 8, 32: 3}, SOME_CUTS, engines=ALL_ENGINES),
        ],
        "tools_time": tools_time((128, 256, 512), 6, 1000, "--format ct2 --check"),
        "onnx_speed": [
            *onnx_speed(base, 8_000, {(1, 30): 7, (32, 30): 3, (1, 512): 2}),
            *onnx_speed(base, 32_000, {(1, 30): 7, (32, 30): 3}),
        ],
        "live_slots": live_slots((30, 200, 800, 2000), 16, 3, 20),
    }
