"""The data of the pages, from ``results/*.json``, and what tables, figures and sentences count.

A run is a flat object: ``{"method": "collab", "seed": 1, "bleu": 34.1}``.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, median
from typing import Any

from collab_common.errors import UserError
from collab_common.files import read_json
from collab_lab.results.render import num

ROOT = Path(__file__).parents[1]
#: Where the data are.
FOLDER = ROOT / "results"
Runs = list[dict[str, Any]]


def signed(text: str) -> str:
    """Minus signs instead of hyphens before numbers."""
    return re.sub(r"(?<![\w-])-(?=\d)", "\N{MINUS SIGN}", text)


def load(name: str) -> Any:
    """A JSON file of :data:`FOLDER`; losses of its runs are in bits, too."""
    return _read(FOLDER / f"{name}.json")


@functools.cache
def _read(path: Path) -> Any:
    content = read_json(path)
    for run in content.get("runs", ()):
        if "valid_nats" in run:
            run["valid_bits"] = run["valid_nats"] / math.log(2)
    return content


def by(runs: Iterable[dict[str, Any]], *keys: str) -> dict[Any, Runs]:
    """The runs that have these keys, in groups of equal values, in the order of the file."""
    groups: dict[Any, Runs] = {}
    for run in runs:
        if all(key in run for key in keys):
            values = tuple(run[key] for key in keys)
            groups.setdefault(values if len(keys) > 1 else values[0], []).append(run)
    return groups


def gains(ours: Runs, theirs: Runs, score: str) -> list[float]:
    """The gain of each seed that both have."""
    by_seed = {run["seed"]: run for run in theirs}
    if len(by_seed) < len(theirs) or len({run["seed"] for run in ours}) < len(ours):
        raise UserError("several runs have one seed", todo="correct the table's function")
    return [run[score] - by_seed[run["seed"]][score] for run in ours if run["seed"] in by_seed]


def average(found: Runs, score: str, spec: str = ".3f") -> str:
    """The mean of a score; "-" where runs have none."""
    return num(fmean(run[score] for run in found), spec) if score in found[0] else "-"


def ends(numbers: Sequence[float], spec: str = ".4f") -> str:
    """``0.94 to 0.99``, or the one number, or "-" for none."""
    texts = dict.fromkeys(num(end(numbers), spec) for end in (min, max) if numbers)
    return " to ".join(texts) or "-"


def decided(stage: str, kind: str) -> Runs:
    """The runs of decide.json of one kind of heads; maybe none.

    From ``scratch``, ``continued`` for a tenth of the updates, ``converted``, ``tuned`` for a tenth
    after that, or a ``repeat`` of a run from scratch.
    """
    return by(load("decide")["runs"], "stage", "kind").get((stage, kind), [])


#: Kinds of decide.json, as their tables list them: trained from the start, and converted.
TRAINED_KINDS = ("own-4", "full", "diagonal", "separate", "grouped-2", "grouped-4", "latent-4",
                 "shape-latent-4", "latent-8")  # fmt: skip
CONVERTED_KINDS = ("latent-4", "even-4", "latent-8", "own-4", "grouped-2", "grouped-4", "heads-3",
                   "heads-2")  # fmt: skip


def cache_of(run: dict[str, Any]) -> int:
    """Bytes of a target token in self-attention and of a source token in cross-attention."""
    sides = product(("key", "value"), ("target", "source"))
    return sum(run[f"{part}_bytes_per_{side}_token"] for part, side in sides)


#: Key widths as shares of d.
KEY_WIDTHS = {1.0: "full", 0.5: "half", 0.25: "a quarter", 0.125: "an eighth"}
#: Shared keys with a diagonal or a full matrix a head, or with own queries; separate keys, which
#: are standard heads where they are as wide as the model.
SHARED, FULL, OWN, SEPARATE, STANDARD = (
    "shared, diagonal", "shared, full", "shared, own", "separate keys", "standard heads"
)  # fmt: skip
#: Folders of shared_keys.json with all key widths, and their d.
WIDTHS = {"main": 128, "large": 256}
#: With d = 128 as an AMD processor trained it.
ON_AMD = {"amd": 128, "large": 256}
D_OF = WIDTHS | ON_AMD


def of_width(folder: str, kind: str, width: float) -> Runs:
    """Runs with one key width."""
    runs = by(load("shared_keys")["widths"], "folder", "queries", "key_dim")
    if kind == SEPARATE and width == D_OF.get(folder):
        kind = STANDARD
    return runs[folder, kind, width]


NARROW = (0.5, 0.25, 0.125)


def shared_and_separate(folder: str, part: float) -> tuple[Runs, Runs]:
    """Runs with shared (diagonal) and with separate keys of this share of d."""
    width = part * D_OF[folder]
    return of_width(folder, SHARED, width), of_width(folder, SEPARATE, width)


def narrow_keys(
    score: str, folders: Iterable[str] = tuple(WIDTHS), parts: Iterable[float] = NARROW
) -> list[float]:
    """Shared (diagonal) minus separate keys, narrower than d: one mean a size and seed.

    Runs of one size and seed have one order of data, so that their differences are one cluster.
    """
    found = []
    for folder in folders:
        of_seed: dict[int, list[float]] = {}
        for part in parts:
            shared, separate = shared_and_separate(folder, part)
            for run, gain in zip(shared, gains(shared, separate, score), strict=True):
                of_seed.setdefault(run["seed"], []).append(gain)
        found += [fmean(some) for some in of_seed.values()]
    return found


#: What the trained model is called in shrink.json, after further updates.
PLAIN = "nothing"


def by_feed_forward() -> dict[str, Runs]:
    """Rows of shrink.json at shares of the layers' parameters, by ``d = 128, F = 2 d``."""
    found: dict[str, Runs] = {}
    rows = by(load("shrink")["rows"], "what")["parameters"]
    for model in sorted(load("shrink")["models"], key=lambda m: (m["d"], m["ffn_dim"])):
        of_model = [row for row in rows if row["model"] == model["model"]]
        size = f"d = {model['d']}, F = {model['ffn_dim'] // model['d']} d"
        found.setdefault(size, []).extend(of_model)
    return found


#: Losses below it are noise of single precision and of the text.
NOISE = 5e-4
#: Models of at_size.json; all but the first have one protocol.
SIZES = ("d = 128, 2+2 layers", "d = 128", "d = 256", "d = 512")
BOTH = ("standard heads", "shared keys, d/4")
#: Runs of ``bench``: two with our decoder and stock fairseq, and one with CTranslate2, too.
TWO, THIRD = slice(2), slice(2, None)
COMPARED = ("ours", "CTranslate2 float32", "CTranslate2 int8")


def speedups(
    runs: slice, preset: str, case: str, heads: str, engine: str = "ours", of: str = "ratio"
) -> list[float]:
    """How many times as fast as stock fairseq, in each of these runs of ``bench``.

    Args:
        case: the end of a record's case, ``"beam 5, batch 64"``, or ``"training"``.
        of: ``ratio`` of the medians; ``low`` and ``high`` are percentiles 5 and 95 of the turns.
    """
    return [
        row[of]
        for run in load("speed")["runs"][runs]
        for row in run["records"]
        if (row["preset"], row["heads"], row["engine"]) == (preset, heads, engine)
        and (row["task"] == case or row["case"].endswith(case))
    ]


def lead(heads: str, beam: int, batch: int) -> float:
    """CTranslate2 (float32) divided by ours, trained models."""
    case = ("trained", f"beam {beam}, batch {batch}", heads)
    [ours], [theirs] = (speedups(THIRD, *case, engine) for engine in COMPARED[:2])
    return theirs / ours


def times_in_logs(method: str, engine: str, of: str = "whole-text") -> list[float]:
    """The logarithm of how many times as fast as another model one is, by seed."""
    ours, theirs = (
        [{**row, "log": math.log(row["faster"])} for row in distilled(name, engine)]
        for name in (method, of)
    )
    return gains(ours, theirs, "log")


def by_length() -> dict[tuple[int, str], dict[int, Runs]]:
    """Records of the lengths by beam, kind and length, with their speedup in the same run."""
    found: dict[tuple[int, str], dict[int, Runs]] = {}
    usual = {"hardware": None, "numbers": "float32", "fixed_steps": False}
    conditions = {tuple(map(run.get, usual, usual.values())) for run in load("speed")["lengths"]}
    assert len(conditions) == 1, "other hardware, numbers or steps need a table of their own"
    for run in load("speed")["lengths"]:
        stock = {(row["beam"], row["length"]): row["seconds"]
                 for row in run["records"] if row["kind"] == "stock fairseq"}  # fmt: skip
        for row in run["records"]:
            lengths = found.setdefault((row["beam"], row["kind"]), {})
            speedup = stock[row["beam"], row["length"]] / row["seconds"]
            lengths.setdefault(row["length"], []).append({**row, "speedup": speedup})
    return found


#: The smaller vocabulary of tables of seconds.
FEW = 8_000
#: What cuts of what_cuts_buy.json are compared with.
WHOLE = "whole model"


def bought(vocabulary: int, length: int) -> Runs:
    """The records of a vocabulary and a length, by batch."""
    every = load("what_cuts_buy")["records"]
    return [r for r in every if (r["vocabulary"], r["length"]) == (vocabulary, length)]


#: What the model itself is called in changed.json.
ITSELF = "the model itself"


def changed(name: str, spec: str = ".0f") -> str:
    """``32 to 36``: percent of the translations that a smaller model changes, of changed.json."""
    rows = by(load("changed")["rows"], "name")[name]
    return ends([100 * row["changed"] for row in rows], spec)


# ---- long texts ----------------------------------------------------------------------------------

#: Models of long.json: of runs of lines from manuals, of lists of captions, of Wikipedia's text.
MANUALS, LISTS, WIKIPEDIA = "manuals-1", "lists-1", "wikitext-1"
#: What a model's texts are called, documents and short ones.
LONG_TEXTS = {
    MANUALS: ("manuals", "lines"),
    LISTS: ("lists", "captions"),
    WIKIPEDIA: ("1,024 tokens", "64 tokens"),
}


def long_rows(model: str, calibrated: str = "documents") -> Runs:
    """Rows of long.json that are calibrated on a text, those of the most bytes first."""
    rows = by(load("long")["rows"], "model", "calibrated")[model, calibrated]
    return sorted(rows, key=lambda row: -row["share"])


def is_simulated(row: Mapping[str, Any]) -> bool:
    """Whether a cache is one that only rivals.py makes."""
    return str(row["name"]).startswith(("rotation", "keys"))


# ---- quality against seconds ---------------------------------------------------------------------

#: Rows of distil.json: methods of recipes/distil.sh, and what pages call them.
DISTILLED = {
    "whole": "whole model",
    "whole-text": "whole model, trained on",
    "cut-onnx": "cut for ONNX Runtime",
    "cut-onnx-text": "cut for ONNX Runtime, trained on",
    "cut-onnx-distilled": "cut for ONNX Runtime, distilled",
    "cut-ct2": "cut for CTranslate2",
    "cut-ct2-text": "cut for CTranslate2, trained on",
    "cut-ct2-distilled": "cut for CTranslate2, distilled",
    "narrow-text": "small from the start: d = 192",
    "narrow-again-text": "d = 192, trained on",
    "narrow-distilled": "d = 192, distilled",
    "narrow-again-distilled": "d = 192, distilled, trained on",
    "shallow-text": "two decoder layers",
    "shallow-again-text": "two decoder layers, trained on",
    "shallow-distilled": "two decoder layers, distilled",
    "shallow-again-distilled": "two decoder layers, distilled, trained on",
}
#: The ways to a smaller model, after their last training on references.
WAYS = {
    "whole model, trained on": "whole-text",
    "cut for ONNX Runtime, trained on": "cut-onnx-text",
    "cut for CTranslate2, trained on": "cut-ct2-text",
    "small from the start: d = 192": "narrow-again-text",
    "two decoder layers": "shallow-again-text",
}
#: Comparisons that were chosen before any model was measured (commit cc6a3ae6), by score; Holm's
#: correction is over those of a score.
PLANNED = {
    "bleu": {
        "cut_narrow": ("cut-onnx-distilled", "narrow-again-distilled"),
        "cut_shallow": ("cut-onnx-distilled", "shallow-again-distilled"),
        "distilling": ("narrow-again-distilled", "narrow-again-text"),
    },
    "bits": {
        "cut_narrow_bits": ("cut-onnx-text", "narrow-again-text"),
        "cut_shallow_bits": ("cut-onnx-text", "shallow-again-text"),
    },
}


def distilled(method: str, engine: str = "onnx-int8") -> Runs:
    """Rows of distil.json, by seed: with the means over the test sets (also losses), and the speed.

    ``faster`` is how many times as fast as the whole model with int8 in the same engine a model
    is, as the geometric mean over turns.
    """
    rows = by(load("distil")["rows"], "method", "engine")
    int8 = engine.partition("-")[0] + "-int8"
    whole = {row["seed"]: row for row in rows.get(("whole", int8), [])}
    found = []
    for row in rows.get((method, engine), []):
        means = {name: fmean(row[f"{of}_{name}"] for of in ("test", "test1"))
                 for name in ("bleu", "chrf", "bits")}  # fmt: skip
        pairs = zip(whole[row["seed"]]["seconds"], row["seconds"], strict=True)
        faster = math.exp(fmean(math.log(theirs / ours) for theirs, ours in pairs))
        ms = 1000 * median(row["seconds"])
        found.append({**row, **means, "faster": faster, "ms": ms})
    return sorted(found, key=lambda row: row["seed"])
