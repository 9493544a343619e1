"""The table and figure of ``recipes/reparametrize.sh``: BLEU before and after, by key dimension.

    python -m fairseq_collab.results.reparametrized RUNS --out DIR

Reads what the recipe has written, and nothing else: in each folder ``METHOD-K`` (or ``trained``,
``tuned-trained``) ``score.json``, ``valid.log`` and, where a model was converted, ``fit.json``.
Writes ``table.json``, ``table.md`` and ``figure.png``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO

from matplotlib.figure import Figure

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import make_folder, write_file
from fairseq_collab.results.figure_style import COLOURS, SHAPES

#: Methods in the order of the table, and how they are called there.
METHODS = {
    "tensorly": "TensorLy (weights)",
    "weights": "ours, weights",
    "root": "ours, halfway to scores (default)",
    "scores": "ours, scores",
    "distilled": "ours, distilled",
    "tuned-tensorly": "TensorLy, fine-tuned",
    "tuned-root": "ours, fine-tuned",
}
#: Models that nothing was converted in.
BASELINES = {"trained": "trained model", "tuned-trained": "trained model, fine-tuned"}
_FOLDER = re.compile(r"(?P<method>[a-z-]+)-(?P<key_dim>\d+)")
_VALID = re.compile(r"\| valid \| (\{.*\})$", re.MULTILINE)


@dataclass(frozen=True)
class Row:
    """One model.

    Attributes:
        key_dim: None where nothing was converted.
        loss: validation loss, nats a token, without label smoothing.
        error: mean over attentions of the relative error that the factorisation ended with.
        seconds: of the clock, that all factorisations together took; other work counts, too.
    """

    method: str
    key_dim: int | None
    bleu: float
    chrf: float
    loss: float
    error: float | None
    seconds: float | None
    signature: str


def read_rows(folder: Path) -> list[Row]:
    """All whole results in ``folder``, baselines first, then by method and key dimension.

    Raises:
        UserError: there are none.
    """
    rows = []
    for path in sorted(folder.glob("*/score.json")):
        name = path.parent.name
        match = _FOLDER.fullmatch(name)
        if name in BASELINES:
            rows.append(read_row(path.parent, name, None))
        elif match and match["method"] in METHODS:
            rows.append(read_row(path.parent, match["method"], int(match["key_dim"])))
    if not any(row.method == "trained" for row in rows):
        raise UserError("no result of the trained model in it", folder, "run the recipe first")
    order = [*BASELINES, *METHODS]
    return sorted(rows, key=lambda row: (order.index(row.method), -(row.key_dim or 0)))


def read_row(folder: Path, method: str, key_dim: int | None) -> Row:
    """The results of one model.

    Raises:
        UserError: its validation log has no result.
    """
    score = json.loads((folder / "score.json").read_text())
    found = _VALID.findall((folder / "valid.log").read_text())
    if not found:
        raise UserError("no validation loss in it", folder / "valid.log", "run the recipe again")
    # fairseq logs in bits.
    loss = float(json.loads(found[-1])["valid_nll_loss"]) * 0.693147180559945
    fit = folder / "fit.json"
    fits = json.loads(fit.read_text())["attentions"] if fit.exists() else []
    return Row(
        method,
        key_dim,
        score["bleu"],
        score["chrf"],
        loss,
        sum(one["error"] for one in fits) / len(fits) if fits else None,
        sum(one["seconds"] for one in fits) if fits else None,
        score["bleu_signature"],
    )


def markdown(rows: Sequence[Row]) -> str:
    """One line a model: BLEU, what it gained over the trained model, chrF, loss and fit."""
    whole = next(row for row in rows if row.method == "trained")
    lines = [
        "| model | K | BLEU | difference | chrF | valid. loss | relative error |",
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for row in rows:
        cells = [
            {**BASELINES, **METHODS}[row.method],
            "" if row.key_dim is None else str(row.key_dim),
            f"{row.bleu:.2f}",
            "" if row is whole else f"{row.bleu - whole.bleu:+.2f}",
            f"{row.chrf:.2f}",
            f"{row.loss:.3f}",
            "" if row.error is None else f"{row.error:.3f}",
        ]
        lines.append(f"| {' | '.join(cells)} |")
    signatures = ", ".join(sorted({f"`{row.signature}`" for row in rows}))
    return "\n".join([*lines, "", f"BLEU: {signatures}."]) + "\n"


def draw(rows: Sequence[Row]) -> Figure:
    """BLEU against the key dimension, a line a method."""
    page = Figure(figsize=(6.4, 4.2), layout="constrained")
    axes = page.add_subplot()
    whole = next(row for row in rows if row.method == "trained")
    axes.axhline(whole.bleu, color="black", linewidth=1, label=BASELINES["trained"])
    axes.axhspan(whole.bleu - 0.5, whole.bleu, color="black", alpha=0.08, linewidth=0)
    for method, colour, shape in zip(METHODS, COLOURS, SHAPES, strict=True):
        chosen = [row for row in rows if row.method == method and row.key_dim is not None]
        if chosen:
            axes.plot(
                [float(row.key_dim or 0) for row in chosen],
                [row.bleu for row in chosen],
                color=colour,
                marker=shape,
                label=METHODS[method],
                linestyle="--" if method.startswith("tuned") else "-",
            )
    axes.set_xscale("log", base=2)
    ticks = sorted({row.key_dim for row in rows if row.key_dim is not None})
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set_xlabel("shared key dimension K")
    axes.set_ylabel("BLEU (grey: up to 0.5 below the trained model)")
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    return page


def _write_text(text: str, file: BinaryIO) -> None:
    file.write(text.encode())


def main(argv: Sequence[str]) -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(prog="python -m fairseq_collab.results.reparametrized")
    parser.add_argument("runs", type=Path, metavar="RUNS", help="OUT of the recipe")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    args = parser.parse_args(argv)

    def action() -> None:
        rows = read_rows(args.runs)
        make_folder(args.out)
        text = {
            "table.json": json.dumps([asdict(row) for row in rows], indent=1) + "\n",
            "table.md": markdown(rows),
        }
        for name, content in text.items():
            write_file(args.out / name, partial(_write_text, content))
        save = partial(draw(rows).savefig, format="png", dpi=200, metadata={"Software": None})
        write_file(args.out / "figure.png", save)
        print(markdown(rows), end="")

    return run(parser.prog, action)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
