"""The table of the models of ``recipes/grouped_lm.sh`` of earlier versions, which were no runs.

    MODEL/model.pt, command, valid.log, test.log

Now ``fairseq-collab table RUNS --x none --columns perplexity.valid,perplexity.test``.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import read_json, write_atomic, write_json
from collab_common.folder import MANIFEST
from collab_common.provenance import circumstances
from fairseq_collab.runs.fairseq_output import perplexity, read_lines
from fairseq_compat import checkpoints

Facts = dict[str, Any]

PROG = "python -m fairseq_collab.evaluation.perplexity"
_COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
_PARAMETERS = re.compile(r"num\. model params: ([\d,]+)")


def language_model(folder: Path) -> Facts:
    """A model of ``recipes/grouped_lm.sh``, and how it was measured, by subset (``measured``)."""
    state = checkpoints.read(str(folder / "model.pt"))["cfg"]
    given = state["model"]
    options = vars(given) if isinstance(given, Namespace) else given
    counts = str(options.get("heads_in_decoder") or options["decoder_attention_heads"]).split(",")
    if len(counts) == 1:
        counts *= options["decoder_layers"]
    model = folder / "model.pt"
    logs = {subset: measured(folder / f"{subset}.log", model) for subset in ("valid", "test")}
    return {
        "name": folder.name,
        "heads": [int(count) for count in counts],
        "parameters": logs["test"]["parameters"],
        "perplexity": {subset: log["perplexity"] for subset, log in logs.items()},
        "seed": state["common"]["seed"],
        "command": "\n".join(read_lines(folder / "command")).strip(),
        "measured": {subset: log["command"] for subset, log in logs.items()},
    }


def measured(log: Path, model: Path) -> Facts:
    """What a log of ``fairseq-eval-lm`` says, below the recipe's command; UserError if nothing."""
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


def make(folders: Sequence[Path], data: Path, out: Path, cpu: bool) -> str:
    """Write ``perplexity.json`` and ``perplexity.md``; the Markdown table.

    UserError unless all models were measured alike.
    """
    models = [language_model(folder) for folder in folders]
    measured = models[0]["measured"]
    for folder, model in zip(folders, models, strict=True):
        if model["measured"] != measured:
            problem = f"measured with {model['measured']}, the first model with {measured}"
            raise UserError(problem, folder, "remove its logs and measure again")
    manifest = data / MANIFEST
    if not manifest.is_file():
        raise UserError("no such file", manifest, "make the folder with data_prep.wikitext2")
    lines = [
        "| model | heads by layer | parameters | validation perplexity | test perplexity |",
        "|---|---|---:|---:|---:|",
    ]
    for model in models:
        del model["measured"]  # as of all
        heads, size = ", ".join(map(str, model["heads"])), f"{model['parameters']:,}"
        valid, test = model["perplexity"]["valid"], model["perplexity"]["test"]
        lines.append(f"| {model['name']} | {heads} | {size} | {valid:.2f} | {test:.2f} |")
    origin = read_json(manifest)["origin"]
    content = {"data": origin, "measured": measured, "models": models, **circumstances(cpu)}
    write_json(out / "perplexity.json", content)
    table = "\n".join(lines) + "\n"
    write_atomic(out / "perplexity.md", table)
    return table


def main() -> int:
    parser = argparse.ArgumentParser(prog=PROG, description="Perplexities of language models.")
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="folder of a model")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="what they read")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write")
    parser.add_argument("--cpu", action="store_true", help="no GPU was used, even if there is one")
    args = parser.parse_args()
    return run(PROG, lambda: print(make(args.models, args.data, args.out, args.cpu), end=""))


if __name__ == "__main__":
    sys.exit(main())
