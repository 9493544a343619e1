"""``heads.json``: what ``fairseq-collab heads`` finds, for its page and for other commands.

    {"version": 1, "checkpoint": NAME, "arch": ..., "data": ..., "subset": "valid",
     "sentences": n, "source_tokens": n, "target_tokens": n, "perplexity": x or null,
     "command": ..., commit, versions, ...,
     "heads": {"encoder": [8, 8], "decoder": [8, 8], "cross": [8, 8]},
     "measures": {NAME: {"encoder": [[x per head] per layer], "decoder": ..., "cross": ...}, ...},
     "relevance": {RULE: {"sentences": n, "lost": share or null}, ...},
     "rank_correlations": {NAME of a measure: {"encoder": x, ...}, ...},
     "offsets": {"offsets": [-3, ..., 3],
                 "encoder": [[[share per offset] per head] per layer], "decoder": ...},
     "rare": {"frequent": 500, "sentences": n, "chance": x, "chance_of_two": x},
     "syntax": null or {"trees": NAME, "sentences": n, "side": "source", ..., "relations":
         {"nsubj": {"dependent->head": {"pairs": n, "baseline": {"offset": 1, "accuracy": x},
                                        "encoder": [[accuracy per head] per layer]}, ...}, ...}},
     "similarity": {"weights": {"encoder": [H x H per layer], ...}, "projections": {...}},
     "roles": {"encoder": [[[names] per head] per layer], ...},
     "examples": [{"source": [tokens], "target": [tokens],
                   "weights": {"encoder": [[H x T x S] per layer], ...}}, ...]}

Where a measure does not apply there is null: in place of a site, or of a head.  A language model
has no heads in ``encoder`` and ``cross``, blocks of text for sentences, and a ``perplexity`` (of a
token), which others lack.  ``relevance`` among the measures is by the paper's rule, and by ours in
files without the part ``relevance``.
``rank_correlations`` are Spearman's with the measure ``loss_increase``; both are there on request.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collab_common.errors import UserError
from collab_common.files import read_versioned, write_content
from fairseq_collab.analysis.heads.weights import Heads
from fairseq_collab.models.layers import SITES, Site

VERSION = 1
NAME = "heads.json"
TODO = "give a file that fairseq-collab heads has written"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file as a whole or not at all."""
    text = json.dumps({"version": VERSION, **content}, ensure_ascii=False, allow_nan=False) + "\n"
    write_content(path, text.encode())


def read(path: Path) -> dict[str, Any]:
    """Read such a file; raises UserError if it is none."""
    content = read_versioned(path, VERSION, "analysis of heads", TODO)
    if not isinstance(content.get("measures"), dict):
        raise UserError("it has no measures", where=path, todo=TODO)
    return content


def measure(
    content: Mapping[str, Any], name: str, heads: Heads, path: Path
) -> dict[Site, list[list[float]]]:
    """One measure of all heads of a model that has these ``heads``.

    Raises:
        UserError: the file has no such measure of all sites, or is of another model.
    """
    found = content["measures"].get(name)
    if not isinstance(found, dict):
        known = ", ".join(sorted(content["measures"])) or "none"
        raise UserError(f"has no measure {name!r}; it has {known}", where=path)
    measured: dict[Site, list[list[float]]] = {}
    for site in SITES:
        layers = found.get(site)
        if layers is None:
            raise UserError(f"{name} is not measured of {site} attention", where=path)
        if not _are_numbers(layers):
            raise UserError(f"{name} is damaged", where=path, todo=TODO)
        check_heads([len(layer) for layer in layers], heads, site, path)
        measured[site] = layers
    return measured


def check_heads(found: list[int], heads: Heads, site: Site, path: Path) -> None:
    """Refuse a file whose heads by layer are not those of the model."""
    if found != list(heads[site]):
        raise UserError(
            f"is of another model: heads by layer in {site} attention are {found} in it, "
            f"{list(heads[site])} in the checkpoint",
            where=path,
        )


def _are_numbers(layers: Any) -> bool:
    """Whether it is a list of layers, each a list of numbers."""
    return isinstance(layers, list) and all(
        isinstance(layer, list) and all(type(number) in (int, float) for number in layer)
        for layer in layers
    )
