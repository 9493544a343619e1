"""The same model in other engines, in turn: fairseq's, ours, and CTranslate2's.

    transformer              fairseq's model and search
    NAME                     ours, with the matrix library of this processor
    NAME, torch's library    ours with torch's own, where that is another one
    NAME, int8               ours with large linear maps in 8 bits, where that is faster
    CTranslate2 float32      what ``fairseq-collab export --format ct2`` makes of fairseq's model
    CTranslate2 int8         the same, rounded as it is loaded

All in this process, on as many threads, on the same sentences, one directly after the other.  Each
engine has threads of its own, which go on waiting for work for a moment: so before each turn there
is a pause.  Ours in float32 must translate as fairseq's does; of the others it is told how many
best translations are the same words, and BLEU where sentences are real.
"""

from __future__ import annotations

import copy
import importlib
import operator
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from collab_common.progress import say
from fairseq_collab.bench.generate import LONGEST, TIE, Case, Translator, count_ties, sentences
from fairseq_collab.bench.models import (
    COLLAB,
    HEADSIZE,
    STOCK,
    Pair,
    Variant,
    opened,
    pair_of,
    random_pair,
    using,
)
from fairseq_collab.bench.settings import BEAM, PRESETS, Record, Settings
from fairseq_collab.bench.timing import compare, in_turn
from fairseq_collab.bench.work import random_task
from fairseq_collab.export.translation import Vocabulary
from fairseq_collab.kernels.onednn import INT8, LIBRARIES, matrix_library, restore_linear
from fairseq_collab.metrics.bleu import score
from fairseq_collab.metrics.model_bleu import joined, words_of
from fairseq_collab.trained.opener import Trained

#: Names of CTranslate2's two, and what it calls them.
CTRANSLATE2 = {"CTranslate2 float32": "float32", "CTranslate2 int8": "int8"}
BEAMS, BATCHES = (1, BEAM), (1, 16, 64)
#: Of ours, with random weights.
RANDOM = (Variant(HEADSIZE), Variant(COLLAB, 4))
PAUSE = 0.05  # seconds


class Item(NamedTuple):
    """A batch as fairseq has it, and the same sentences as words."""

    batch: Any
    words: list[list[str]]


#: Translates an item: the best words of each sentence.
Engine = Callable[[Item], list[list[str]]]


def run(settings: Settings) -> Iterator[Record]:
    """All models, cases and engines: a record each."""
    for pair, its_cases in subjects(settings):
        with tempfile.TemporaryDirectory() as folder:
            export(pair.stock, pair.ours.task, Path(folder, "model"))
            for case in its_cases:
                yield from compared(pair, Path(folder, "model"), case, settings)


def subjects(settings: Settings) -> Iterator[tuple[Pair, list[Case]]]:
    """Trained models with natural lengths, and random ones with fixed lengths."""
    for file in settings.engines or ():
        yield pair_of(opened(file, settings)), [*cases(settings, natural=True)]
    for preset in settings.presets:
        for variant in RANDOM:
            most = PRESETS[preset].batch
            task = random_task(preset, most, settings.seed)
            yield random_pair(variant, preset, task, settings.seed), [*cases(settings, most)]


def cases(settings: Settings, most: int = max(BATCHES), natural: bool = False) -> Iterator[Case]:
    """Each beam and batch size up to ``most``; a few sentences only where one is translated."""
    if settings.quick:
        yield Case(BEAM, 16, 16, None if natural else 10, (0.5, 2))
        return
    for beam in BEAMS:
        for batch in [size for size in BATCHES if size <= most]:
            number = 4 * batch if batch > 1 else 40
            length = None if natural else 30
            yield Case(beam, batch, number if natural else batch, length, (8, 7))


# ---- the engines ---------------------------------------------------------------------------------


def translators(pair: Pair, case: Case, settings: Settings) -> dict[str, Translator]:
    """fairseq's and ours, by name; those in float32 first."""

    def prepared(model: Any) -> Translator:
        return Translator(copy.deepcopy(model), pair.ours.task, case, settings)

    found = {STOCK: prepared(pair.stock.model), pair.name: prepared(pair.ours.model)}
    if matrix_library() != LIBRARIES[0]:
        model = copy.deepcopy(pair.ours.model)
        restore_linear(model)
        found[f"{pair.name}, torch's library"] = prepared(model)
    with using(INT8):
        try:
            matrix_library()
        except ValueError as error:
            say(f"left out: {error}")
        else:
            found[f"{pair.name}, {INT8}"] = prepared(pair.ours.model)
    return found


def engine_of(translator: Translator) -> Engine:
    """One of fairseq's or ours, with words as its result."""
    symbols = translator.task.target_dictionary
    return lambda item: [words_of(symbols, best["tokens"]) for best, *_ in translator(item.batch)]


def export(trained: Trained, task: Any, out: Path) -> None:
    """The folder of a model for CTranslate2; raises UserError where it cannot compute it."""
    # An optional package: the command has seen to it that it is there.
    form = importlib.import_module("fairseq_collab.export.ctranslate2_format")
    form.check(trained, "CTranslate2", form.ACTIVATIONS)
    languages = (task.cfg.source_lang or "source", task.cfg.target_lang or "target")
    words = Vocabulary(*languages, task.source_dictionary, task.target_dictionary)
    form.write(trained, words, out)


def ctranslate2(model: Path, kind: str, case: Case, settings: Settings) -> Engine:
    """A folder in CTranslate2, with the beam, lengths and normalisation of fairseq's search.

    At the last of a fixed number of steps fairseq takes the end of the sentence, whatever its
    probability; there CTranslate2 has one more word.
    """
    translator = importlib.import_module("ctranslate2").Translator(
        str(model), compute_type=kind, inter_threads=1, intra_threads=settings.threads
    )
    least, longest = (1, LONGEST) if case.fixed is None else (case.fixed + 1, case.fixed + 1)
    options: Record = {"min_decoding_length": least, "max_decoding_length": longest}
    options |= {"beam_size": case.beam, "length_penalty": 1.0, "return_scores": True}
    options |= {"max_batch_size": 0, "max_input_length": 0}  # as given, whole
    return lambda item: [
        found.hypotheses[0] for found in translator.translate_batch(item.words, **options)
    ]


# ---- checked and timed ---------------------------------------------------------------------------


def compared(pair: Pair, exported: Path, case: Case, settings: Settings) -> Iterator[Record]:
    """See that they translate alike, and time them in turn: a record each, against fairseq's."""
    task, ours = pair.ours.task, translators(pair, case, settings)
    engines = {name: engine_of(translator) for name, translator in ours.items()}
    for name, kind in CTRANSLATE2.items():
        engines[name] = ctranslate2(exported, kind, case, settings)
    batches = check_ours(ours, pair, case, settings)
    items = [Item(batch, source_words(batch, task)) for batch in batches]
    # The warm-up, too.
    found = {name: [best for item in items for best in engines[name](item)] for name in engines}
    times = in_turn(engines, items, case.budget, PAUSE)
    fastest = min(engines, key=lambda name: statistics.median(times[name]))
    sizes = [len(item.words) for item in items]
    labels: Record = {"part": "engines", "preset": pair.preset, "pair": pair.name}
    labels |= {"case": case.name, "beam": case.beam, "batch": case.batch, "against": STOCK}
    labels |= {"sentences": sum(sizes), "work": statistics.median_high(sizes), "unit": "sentences"}
    quality = qualities(found, batches, task) if case.fixed is None else {}
    for name in engines:
        yield {
            **labels,
            "model": name,
            "engine": name.replace(pair.name, "ours"),
            **compare(times[STOCK], times[name]),
            "fastest": fastest,
            "times_of_fastest": compare(times[name], times[fastest])["ratio"],
            **quality.get(name, {}),
        }


def check_ours(
    ours: Mapping[str, Translator], pair: Pair, case: Case, settings: Settings
) -> list[Any]:
    """The batches of a case; UserError if ours translate them otherwise in float32."""
    batches = sentences(pair.ours.task, case, settings)
    for name, translator in ours.items():
        if name != STOCK and not name.endswith(INT8):
            count_ties({STOCK: ours[STOCK], name: translator}, batches, TIE[settings.dtype])
    return batches


def source_words(batch: Any, task: Any) -> list[list[str]]:
    """The sentences of a batch, for CTranslate2, which ends them itself."""
    return [words_of(task.source_dictionary, line) for line in batch["net_input"]["src_tokens"]]


def qualities(
    found: Mapping[str, Sequence[list[str]]], batches: Sequence[Any], task: Any
) -> dict[str, Record]:
    """Of each engine: BLEU against the data folder's own target side, and ``same``.

    The latter is the share of sentences whose best translation is in fairseq's words, 0 to 1.
    """
    symbols, theirs = task.target_dictionary, found[STOCK]
    references = [joined(words_of(symbols, line)) for batch in batches for line in batch["target"]]
    return {
        name: {
            "same": sum(map(operator.eq, theirs, translations)) / len(references),
            "bleu": score([joined(words) for words in translations], references).bleu,
        }
        for name, translations in found.items()
    }
