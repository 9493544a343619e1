"""Results of recipes of earlier versions, which were no runs, as fields of their records.

    OUT/METHOD-K/score.json, valid.log, fit.json       recipes/reparametrize.sh; trained without K
    MODEL/model.pt, command, valid.log, test.log       recipes/grouped_lm.sh

Runs of summaries were scored as translations (:func:`add_rouge`), and no run said which of its
attentions has how many heads (:func:`add_heads`).

What the folders do not say is not there: these are no whole records.
"""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
import statistics
from argparse import Namespace
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from fairseq_collab.metrics.rouge import rouge
from fairseq_collab.runs.fairseq_output import entries, perplexity, read_lines
from fairseq_collab.runs.run import Run
from fairseq_collab.runs.trained import model_figures
from fairseq_collab.runs.translations import read_system
from fairseq_compat import checkpoints

Facts = dict[str, Any]

LOG_2 = 0.693147180559945  # to as many digits as those recipes wrote it
_FOLDER = re.compile(r"(?P<method>[a-z-]+?)(-(?P<key_dim>\d+))?")

_COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
_PARAMETERS = re.compile(r"num\. model params: ([\d,]+)")


def reparametrized(folder: Path) -> list[Facts]:
    """The models that ``recipes/reparametrize.sh`` measured, sorted by their folders.

    Raises:
        UserError: there are none, or one has no validation loss.
    """
    found = []
    for path in sorted(folder.glob("*/score.json")):
        named = _FOLDER.fullmatch(path.parent.name)
        losses = entries(path.parent / "valid.log", "valid")
        if not named:
            continue
        if not losses:
            todo = "run the recipe again"
            raise UserError("no validation loss in it", path.parent / "valid.log", todo)
        score, fit = json.loads(path.read_text()), path.parent / "fit.json"
        fits = json.loads(fit.read_text())["attentions"] if fit.exists() else []
        found.append(
            {
                "method": named["method"],
                "key_dim": named["key_dim"] and int(named["key_dim"]),
                **{name: score[name] for name in ("bleu", "chrf", "bleu_signature")},
                "valid_nats": float(losses[-1]["valid_nll_loss"]) * LOG_2,
                "relative_error": statistics.fmean(x["error"] for x in fits) if fits else None,
                "seconds": sum(x["seconds"] for x in fits) if fits else None,
            }
        )
    if not found:
        raise UserError("no result in it", folder, "give the OUT of recipes/reparametrize.sh")
    return found


def language_model(folder: Path) -> Facts:
    """A model of ``recipes/grouped_lm.sh``, and how it was measured, by subset (``measured``).

    Raises:
        UserError: a file cannot be used.
    """
    state = checkpoints.read(str(folder / "model.pt"))["cfg"]
    given = state["model"]
    options = vars(given) if isinstance(given, Namespace) else given
    counts = str(options.get("heads_in_decoder") or options["decoder_attention_heads"]).split(",")
    if len(counts) == 1:
        counts *= options["decoder_layers"]
    model = folder / "model.pt"
    logs = {subset: measured(folder / f"{subset}.log", model) for subset in ("valid", "test")}
    return {
        "method": folder.name,
        "heads_by_site": {"decoder": [int(count) for count in counts]},
        "parameters": logs["test"]["parameters"],
        "perplexity": {subset: log["perplexity"] for subset, log in logs.items()},
        "seed": state["common"]["seed"],
        "command": "\n".join(read_lines(folder / "command")).strip(),
        "measured": {subset: log["command"] for subset, log in logs.items()},
    }


def measured(log: Path, model: Path) -> Facts:
    """What a log of ``fairseq-eval-lm`` says, below the command that the recipe wrote there.

    Raises:
        UserError: it cannot be read, or there is no result in it.
    """
    text = "\n".join(read_lines(log))
    found, command, size = perplexity(text), _COMMAND.search(text), _PARAMETERS.search(text)
    if not (found and command and size):
        raise UserError("no result of fairseq-eval-lm in it", log, "remove it and measure again")
    return {
        "perplexity": found,
        "command": without_model(command[1], model),
        "parameters": int(size[1].replace(",", "")),
    }


def without_model(command: str, model: Path) -> str:
    """A command of the shell with ``MODEL`` in place of the model's path, however it is spelt."""
    words = shlex.split(command)
    return shlex.join(
        "MODEL" if Path(word).resolve() == model.resolve() else word for word in words
    )


def add_rouge(run: Run) -> None:
    """Make a finished run of summaries, scored as a translation, say so: with ROUGE in its record.

    Raises:
        UserError: its translations are not those that were scored.
    """
    record = run.score()
    if record and record.task == "translation":
        system = read_system(run.folder)
        rouges = rouge(system.hypotheses, system.references)
        found: Facts = {"rouge": rouges.scores, "rouge_signature": rouges.signature}
        run.finish(dataclasses.replace(record, task="summarization", **found))


def add_heads(run: Run) -> None:
    """Make the record of a finished run say its heads by site.

    Raises:
        UserError: its model cannot be read.
    """
    record = run.score()
    if record and record.heads_by_site is None and run.average.exists():
        found = model_figures(run, run.config())["heads_by_site"]
        run.finish(dataclasses.replace(record, heads_by_site=found))
