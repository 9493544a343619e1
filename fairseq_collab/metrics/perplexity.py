"""Perplexities of language models in one table, as ``fairseq-eval-lm`` has measured them.

    python -m fairseq_collab.metrics.perplexity MODEL... --data DIR --out DIR

A MODEL is a folder with ``model.pt``, ``command`` (the line that made it) and, for each of
:data:`SUBSETS`, ``SUBSET.log``: what ``fairseq-eval-lm`` has printed, below its own command in a
line that starts with ``$ ``.  Perplexities are per word, ends of lines counted as words.  Writes
``perplexity.json`` and ``perplexity.md``; models that were measured otherwise than the first are
refused.
"""

from __future__ import annotations

import argparse
import re
import shlex
import sys
from argparse import Namespace
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import read_json, write_atomic, write_json
from collab_common.folder import MANIFEST
from fairseq_collab.metrics.provenance import circumstances
from fairseq_compat import checkpoints

PROG = "python -m fairseq_collab.metrics.perplexity"
SUBSETS = ("valid", "test")
_COMMAND = re.compile(r"^\$ (.+)$", re.MULTILINE)
_PARAMETERS = re.compile(r"num\. model params: ([\d,]+)")
_RESULT = re.compile(r"Loss \(base 2\): [\d.]+, Perplexity: ([\d.]+)")


@dataclass(frozen=True)
class Measured:
    """One run of ``fairseq-eval-lm``: its command, without the model, and what it printed."""

    command: str
    parameters: int
    perplexity: float


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        heads: of each layer.
        perplexity: by subset.
        command: what made the model.
    """

    name: str
    heads: list[int]
    parameters: int
    perplexity: dict[str, float]
    seed: int
    command: str


def read_log(path: Path, model: Path) -> Measured:
    """What ``fairseq-eval-lm`` has measured of ``model``.

    Raises:
        UserError: the log is missing or has no result in it, or no command that a shell could read.
    """
    text = read_text(path)
    command, parameters, result = (
        pattern.search(text) for pattern in (_COMMAND, _PARAMETERS, _RESULT)
    )
    if not (command and parameters and result):
        raise UserError("no result of fairseq-eval-lm in it", path, "remove it and measure again")
    try:
        told = without_model(command[1], model)
    except ValueError as error:  # such as a quotation without an end
        raise UserError(f"its command: {error}", path, "remove it and measure again") from error
    return Measured(told, int(parameters[1].replace(",", "")), float(result[1]))


def without_model(command: str, model: Path) -> str:
    """A command of the shell with ``MODEL`` in place of the model's path, however it is spelt."""
    words = shlex.split(command)
    return shlex.join(
        "MODEL" if Path(word).resolve() == model.resolve() else word for word in words
    )


def read_text(path: Path) -> str:
    """The text of a file.

    Raises:
        UserError: it cannot be read.
    """
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot be read: {error.strerror}", path) from error


def heads_of(given: Any) -> list[int]:
    """Heads by layer, from the options of a language model, stock fairseq's or ours."""
    options = vars(given) if isinstance(given, Namespace) else given
    layers = options["decoder_layers"]
    counts = str(options.get("heads_in_decoder") or options["decoder_attention_heads"]).split(",")
    return [int(count) for count in (counts * layers if len(counts) == 1 else counts)]


def read_row(folder: Path, measured: dict[str, Measured]) -> Row:
    """One model with its measurements, by subset.

    Raises:
        UserError: its checkpoint or command cannot be read.
    """
    cfg = checkpoints.read(str(folder / "model.pt"))["cfg"]
    return Row(
        folder.name,
        heads_of(cfg["model"]),
        measured["test"].parameters,
        {subset: one.perplexity for subset, one in measured.items()},
        cfg["common"]["seed"],
        read_text(folder / "command").strip(),
    )


def read_rows(folders: Sequence[Path]) -> tuple[list[Row], dict[str, str]]:
    """All models, and how they were measured: the command of each subset.

    Raises:
        UserError: a file cannot be used, or a model was measured otherwise than the first.
    """
    rows: list[Row] = []
    commands: dict[str, str] = {}
    for folder in folders:
        measured = {}
        for subset in SUBSETS:
            path = folder / f"{subset}.log"
            measured[subset] = read_log(path, folder / "model.pt")
            first = commands.setdefault(subset, measured[subset].command)
            if measured[subset].command != first:
                raise UserError(
                    f"measured with {measured[subset].command!r}, the first model with {first!r}",
                    path,
                    "remove it and measure again",
                )
        rows.append(read_row(folder, measured))
    return rows, commands


def markdown(rows: Sequence[Row]) -> str:
    """One line a model: heads, parameters, perplexities."""
    lines = [
        "| model | heads by layer | parameters | validation perplexity | test perplexity |",
        "|---|---|---:|---:|---:|",
    ]
    for row in rows:
        heads = ", ".join(map(str, row.heads))
        figures = " | ".join(f"{row.perplexity[subset]:.2f}" for subset in SUBSETS)
        lines.append(f"| {row.name} | {heads} | {row.parameters:,} | {figures} |")
    return "\n".join(lines) + "\n"


def make(folders: Sequence[Path], data: Path, out: Path, cpu: bool) -> str:
    """Write both files; the Markdown table.

    Raises:
        UserError: see :func:`read_rows`; or the data folder's manifest is missing.
    """
    rows, commands = read_rows(folders)
    manifest = data / MANIFEST
    if not manifest.is_file():
        raise UserError("no such file", manifest, "make the folder with data_prep.wikitext2")
    content = {
        "data": read_json(manifest)["origin"],
        "measured": commands,
        "models": [asdict(row) for row in rows],
        **circumstances(cpu),
    }
    table = markdown(rows)
    write_json(out / "perplexity.json", content)
    write_atomic(out / "perplexity.md", table)
    return table


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(prog=PROG, description="Perplexities of language models.")
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="folder of a model")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="what they read")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write")
    parser.add_argument("--cpu", action="store_true", help="no GPU was used, even if there is one")
    args = parser.parse_args(argv)
    return run(PROG, lambda: print(make(args.models, args.data, args.out, args.cpu), end=""))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
