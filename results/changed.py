"""How many translations a smaller model changes, next to its loss: writes changed.json.

    python results/changed.py results/changed.json --data data/multi30k --model m30k128-1=average.pt

Each row is one change of a trained model, as ``shrink`` makes it without training.  The validation
set is translated before and after, with beam 5: the share of translations that differ, be it in one
character; the rise of the loss in bits per target token; BLEU and chrF.  For comparison: the model
in CTranslate2's int8, and the next model that is given, another seed of the training.  Run again,
it resumes.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from typing import Any

from fairseq.data.data_utils import post_process

from collab_common.errors import UserError
from collab_lab import open_model, shrink, translate
from collab_lab.export.model import vocabulary
from collab_lab.metrics.generate import words_of
from collab_lab.metrics.translation_scores import score, subword_marks
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import dataset_of
from results.data import ITSELF
from results.measured import Wanted, Work, run

INT8, OTHER = "in CTranslate2's int8", "another seed"
#: Smaller models, by their names in tables: arguments of ``shrink``.
CHANGES: Mapping[str, Mapping[str, Any]] = {
    "standard heads, 8 bits": {"cache": 0.53125, "kinds": ["unchanged"]},
    "latents, exact": {"cache": 0.5},
    "standard heads, 4 bits": {"cache": 0.28125, "kinds": ["unchanged"]},
    "cache, a quarter": {"cache": 0.25},
    "cache, an eighth": {"cache": 0.125},
    "cache, a sixteenth": {"cache": 0.0625},
    "grouped query, a quarter": {"cache": 0.25, "kinds": ["grouped-query"]},
    "grouped query, half, for CTranslate2": {"cache": 0.5, "engine": "ct2"},
    "a third of the heads": {"heads": 0.67},
    "a third of the layers' parameters": {"parameters": 0.66},
    "a third of them, for CTranslate2": {"parameters": 0.66, "engine": "ct2"},
}


def rows_of(file: str, others: Sequence[Path]) -> Iterator[Wanted]:
    """The rows of a model.

    Args:
        others: all models, in the order in which each is compared with the next.
    """
    for name in (ITSELF, *CHANGES, INT8, OTHER):
        yield Wanted("rows", {"name": name}, name, others if name == OTHER else ())


def measure(work: Work, wanted: Wanted, others: Sequence[Path]) -> dict[str, Any]:
    """The translations after a change next to those before it.

    Args:
        others: all models, in the order in which each is compared with the next.
    """
    name, model = wanted.of, work.model
    before = own(work)
    lost: Mapping[str, float | None] = {"lost": None, "lost_test": None}
    if name == INT8:
        after = in_int8(model)
    else:
        smaller = changed(work, name, others)
        after = before if smaller is model else translated(smaller)
        lost = work.lost(smaller)
    scores = score(after, text_of(model, "target_lang"))
    return {
        "changed": round(fmean(a != b for a, b in zip(before, after, strict=True)), 4),
        "sentences": len(before),
        **lost,
        "bleu": round(scores.bleu, 2), "bleu_signature": scores.bleu_signature,
        "chrf": round(scores.chrf, 2), "chrf_signature": scores.chrf_signature,
        "seed": int(model.cfg.common.seed),
    }  # fmt: skip


def changed(work: Work, name: str, others: Sequence[Path]) -> Trained:
    """The smaller model of this name, or the one that comes after this one."""
    if name == ITSELF:
        return work.model
    if name == OTHER:
        other = others[(others.index(work.model.path) + 1) % len(others)]
        if other == work.model.path:
            raise UserError("needs a second --model")
        return open_model(other, work.model.cfg.task.data)
    return shrink(work.model, evidence=work.found, **CHANGES[name]).model


def text_of(model: Trained, side: str) -> list[str]:
    """Ordinary text of the validation set: ``source_lang`` or ``target_lang``."""
    raw = Path(model.cfg.task.data) / "raw" / f"valid.{model.cfg.task[side]}"
    return raw.read_text(encoding="utf-8").splitlines()


@functools.cache
def own(work: Work) -> list[str]:
    """The translations of the model itself."""
    return translated(work.model)


def translated(model: Trained) -> list[str]:
    """The translations of the validation set."""
    return translate(model, text_of(model, "source_lang"))


def in_int8(model: Trained) -> list[str]:
    """The translations of the exported model, its weights rounded when it is loaded."""
    if find_spec("ctranslate2") is None:
        raise UserError("needs the package ctranslate2", INT8)
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


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--model", action="append", default=[])
    given = parser.parse_known_args(argv)[0].model
    others = [Path(model.partition("=")[2]) for model in given]
    rows, measured = (
        functools.partial(rows_of, others=others),
        functools.partial(measure, others=others),
    )
    return run("changed.py", __doc__, argv, rows, measured)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
