"""The table of the models of ``recipes/grouped_lm.sh`` of earlier versions.

Now ``fairseq-collab table RUNS --x none --columns perplexity.valid,perplexity.test``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from collab_common.command import run
from collab_common.errors import UserError
from collab_common.files import read_json, write_atomic, write_json
from collab_common.folder import MANIFEST
from collab_common.provenance import circumstances
from fairseq_collab.runs.former import language_model

PROG = "python -m fairseq_collab.evaluation.perplexity"


def make(folders: Sequence[Path], data: Path, out: Path, cpu: bool) -> str:
    """Write ``perplexity.json`` and ``perplexity.md``; the Markdown table.

    Raises:
        UserError: a file cannot be used, or a model was measured otherwise than the first.
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
    rows = []
    for model in models:
        name, heads = model["method"], model["heads_by_site"]["decoder"]
        valid, test = model["perplexity"]["valid"], model["perplexity"]["test"]
        kept = ("parameters", "perplexity", "seed", "command")
        rows.append({"name": name, "heads": heads, **{key: model[key] for key in kept}})
        counts = ", ".join(map(str, heads))
        lines.append(f"| {name} | {counts} | {model['parameters']:,} | {valid:.2f} | {test:.2f} |")
    origin = read_json(manifest)["origin"]
    content = {"data": origin, "measured": measured, "models": rows, **circumstances(cpu)}
    write_json(out / "perplexity.json", content)
    table = "\n".join(lines) + "\n"
    write_atomic(out / "perplexity.md", table)
    return table


def main() -> int:
    """Run the command; its exit status."""
    parser = argparse.ArgumentParser(prog=PROG, description="Perplexities of language models.")
    parser.add_argument("models", type=Path, nargs="+", metavar="MODEL", help="folder of a model")
    parser.add_argument("--data", type=Path, required=True, metavar="DIR", help="what they read")
    parser.add_argument("--out", type=Path, required=True, metavar="DIR", help="where to write")
    parser.add_argument("--cpu", action="store_true", help="no GPU was used, even if there is one")
    args = parser.parse_args()
    return run(PROG, lambda: print(make(args.models, args.data, args.out, args.cpu), end=""))


if __name__ == "__main__":
    sys.exit(main())
