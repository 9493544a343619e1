"""The translations of a run, or of what ``fairseq-generate`` printed, with their references."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from sacrebleu.metrics import BLEU

from collab_common.errors import UserError
from collab_common.files import read_json
from collab_common.folder import MANIFEST
from data_prep.moses import ordinary_text
from fairseq_collab.metrics.text import tokenizer
from fairseq_collab.runs.fairseq_output import read_hypotheses, read_lines, read_side
from fairseq_collab.runs.record import Record
from fairseq_collab.runs.run import Run

#: How far a score computed again may be from the recorded one (BLEU of 0 to 100).
TOLERANCE = 0.005


@dataclass(frozen=True)
class System:
    """Translations of a set, with the record of the run they come from (None if from none).

    Those of a run are ordinary text, those of a file as fairseq-generate has printed them.
    """

    path: Path
    hypotheses: list[str]
    references: list[str]
    record: Record | None = None


def read_system(path: Path, reference: Path | None = None, subset: str | None = None) -> System:
    """A finished run, or an output of fairseq-generate with its ``reference``.

    Args:
        subset: the test set of a run's translations; None for its own.

    Raises:
        UserError: the run is not finished, a file cannot be read, its sentences are not as many as
            the reference's, or they do not have the score that the run recorded.
    """
    if not path.is_dir():
        if reference is None:
            todo = "give its reference text (--reference)"
            raise UserError("is not a run", where=path, todo=todo)
        return System(path, *_aligned(path, reference))
    run = Run(path).for_subset(subset)
    record = _translated(run)
    generation = path / (record.hypotheses or run.generation.name)
    reference = reference or run.reference()
    hypotheses, references = _aligned(generation, reference)
    task: Any = OmegaConf.select(run.config(), "task") or {}
    if "data" in task:
        hypotheses = readable(hypotheses, Path(task["data"]), task["target_lang"])
    _check_score(hypotheses, references, record, generation, reference)
    return System(path, hypotheses, references, record)


def _translated(run: Run) -> Record:
    record = run.score() if run.verdict() == "finished" else None
    if record is None:
        todo = f"give a run that has a {run.score_file.name}, or an output of fairseq-generate"
        raise UserError(f"not a finished run: {run.state()}", run.folder, todo)
    needed = ("bleu", "hypotheses", "reference")
    if missing := [name for name in needed if getattr(record, name) is None]:
        what = f"lacks {', '.join(missing)}"
        raise UserError(what, run.score_file, "give a run that translates")
    return record


def _aligned(generation: Path, reference: Path) -> tuple[list[str], list[str]]:
    hypotheses, references = read_hypotheses(generation), read_lines(reference)
    if len(hypotheses) != len(references):
        what = f"{len(hypotheses)} hypotheses, but {len(references)} sentences in {reference}"
        todo = "give the --reference of the set that was translated"
        raise UserError(what, generation, todo)
    return hypotheses, references


def _check_score(
    hypotheses: list[str], references: list[str], record: Record, generation: Path, reference: Path
) -> None:
    """Texts that were exchanged after scoring would be tested under another text's name."""
    how = re.search(r"\btok:([\w-]+)", record.bleu_signature or "")  # perhaps of an earlier version
    scorer = BLEU(tokenize=how[1] if how else tokenizer(references))
    bleu, recorded = scorer.corpus_score(hypotheses, [references]).score, record.bleu
    assert recorded is not None
    if abs(bleu - recorded) > TOLERANCE:
        what = f"BLEU {bleu:.2f} against {reference}, but the run recorded {recorded:.2f}"
        todo = "give the reference that it was scored with, or score the run again"
        raise UserError(what, generation, todo)


def manifest(data: Path) -> dict[str, Any]:
    """What a data folder says of itself; {} where it says nothing."""
    try:
        found: dict[str, Any] = read_json(data / MANIFEST)
    except FileNotFoundError:
        return {}
    return found


def subwords_of(data: Path, target: str | None) -> str | None:
    """How the data folder's words are joined from its subwords; None where it has none.

    A folder that says nothing of it has subwords' marks in its target dictionary.
    """
    form = manifest(data).get("form") or {}
    found: str | None = form.get("subwords")
    if found or (data / "spm.model").exists():
        return found or "sentencepiece"
    dictionary = data / f"dict.{target}.txt"
    symbols = [line.split(" ")[0] for line in read_lines(dictionary)] if dictionary.exists() else []
    if any(symbol.startswith("\u2581") for symbol in symbols):
        return "sentencepiece"
    return "subword_nmt" if any(symbol.endswith("@@") for symbol in symbols) else None


def readable(hypotheses: list[str], data: Path, language: str) -> list[str]:
    """Ordinary text: hypotheses in Moses tokens, where the data folder says so, are detokenised."""
    form = manifest(data).get("form")  # none: raw text and sentencepiece (data_prep.prepare)
    return hypotheses if form is None else ordinary_text(hypotheses, form, language)


def examples(generation: Path, references: list[str], number: int) -> str:
    """Sources, references and hypotheses of ``number`` sentences, evenly spread over the corpus."""
    hypotheses, sources = read_hypotheses(generation), read_side(generation, "S")
    chosen = [i * len(hypotheses) // number for i in range(number)]
    return "\n\n".join(
        f"source      {sources.get(i, '')}\n"
        f"reference   {references[i]}\n"
        f"translation {hypotheses[i]}"
        for i in chosen
    )
