"""Ordinary text into the subwords of a data folder, as its recipe made those of the test set.

    manifest without "form", or with sentencepiece in it    spm.model
    Moses' tokens and subword-nmt                            the recipe's steps, then code
    "subwords": null, not Moses' tokens                      words between blanks, as they are

The model lies in the data folder, or where the recipe of a published corpus leaves it, in text/
beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import sentencepiece

from collab_common.errors import UserError
from collab_common.files import read_json
from collab_common.folder import MANIFEST, Json
from data_prep import apply_bpe
from data_prep.moses import Pipeline
from data_prep.parallel_text import without_typographic_apostrophes
from data_prep.subword import encode

Segment = Callable[[list[str]], list[str]]
SPM = "spm.model"
#: How recipes tokenise their test set (their ``_tokenise``).  The variant ``wmt14`` normalises it;
#: all others, as fairseq's scripts, map typographic apostrophes instead.
_STEPS: dict[str, Json] = {"wmt14": {"aggressive_hyphens": True}, "iwslt14": {"lower": True}}
_NORMALISED, _READY_MADE = "wmt14", "google"


def segmenter(data: Path, language: str) -> Segment:
    """Segments lines of ordinary text in one of the folder's languages.

    Raises UserError if the folder does not say how its text was segmented, or the model is gone.
    """
    path = data / MANIFEST
    manifest: Json = read_json(path) if path.is_file() else {}
    form = manifest.get("form")
    if form is None or (form["subwords"] == "sentencepiece" and not form["moses"]):
        model = _beside(data, SPM)
        return partial(encode, sentencepiece.SentencePieceProcessor(model_file=str(model)))
    if form["subwords"] is None and not form["moses"]:
        return lambda lines: lines
    options = manifest.get("options", {})
    corpus, variant = options.get("corpus"), options.get("variant")
    repeated = corpus in _STEPS and variant != _READY_MADE and form["hyphens"] is None
    if not repeated or form["subwords"] != "subword_nmt":
        what = "its text was tokenised in a way that is not repeated here"
        raise UserError(what, path, "give a data folder with sentencepiece, WMT14 or IWSLT14")
    normalise = variant == _NORMALISED
    tokens = Pipeline(language, normalise=normalise, **_STEPS[corpus])
    bpe = apply_bpe.BpeOptions.from_json(form)
    subwords = apply_bpe.Segmenter(_beside(data, apply_bpe.CODES), language, bpe)
    if normalise:
        return lambda lines: subwords(tokens(lines))
    return lambda lines: subwords(tokens(list(map(without_typographic_apostrophes, lines))))


def _beside(data: Path, name: str) -> Path:
    for folder in (data, data.parent / "text"):
        if (folder / name).is_file():
            return folder / name
    todo = "prepare the data again, or give the folder that the recipe made"
    raise UserError(f"there is no {name}, which its subwords are made with", data, todo)
