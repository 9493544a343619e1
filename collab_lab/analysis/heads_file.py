"""``heads.json``: what ``fairseq-collab heads`` finds, for its page and for other commands.

    {"version": 1, "checkpoint": NAME, "checkpoint_sha256": ..., "data": NAME, "data_sha256": ...,
     "subset": "valid", "arch": ..., "command": ..., commit, versions, ...,
     "heads": {"encoder": [8, 8], "decoder": [8, 8], "cross": [8, 8]},
     "stages": {NAME of a finished stage: its settings, ...},
     "resumed": {NAME of a stage measured by a later command: {"command": ..., commit, ...}, ...},
     "sentences": n,
     "measures": {NAME: {"encoder": [[x per head] per layer], "decoder": ..., "cross": ...}, ...},
     "offsets": {"offsets": [-3, ..., 3],
                 "encoder": [[[share per offset] per head] per layer], "decoder": ...},
     "rare": {"frequent": 500, "sentences": n, "chance": x},
     "syntax": {"sentences": n, "too_long": n, "relations":
         {"nsubj": {"dependent->head": {"pairs": n, "baseline": {"offset": 1, "accuracy": x},
                                        "encoder": [[accuracy per head] per layer]}, ...}, ...}},
     "relevance": {"sentences": n, "lost": share},
     "roles": {"encoder": [[[names] per head] per layer], ...}}

Where a measure does not apply there is null: in place of an attention type, or of a head.  A
language model has no heads in ``encoder`` and ``cross``, and blocks of text for sentences.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from collab_common import AttentionType
from collab_common.errors import UserError
from collab_common.files import read_versioned, write_atomic
from collab_lab.trained.attentions import HeadCounts

VERSION = 1
NAME = "heads.json"
TODO = "give a file that fairseq-collab heads has written"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Write the file atomically."""
    text = json.dumps({**content, "version": VERSION}, ensure_ascii=False, allow_nan=False) + "\n"
    write_atomic(path, text)


def read(path: Path) -> dict[str, Any]:
    """Read the file; raises UserError if it is no analysis of heads."""
    content = read_versioned(path, VERSION, "analysis of heads", TODO)
    if not isinstance(content.get("measures"), dict):
        raise UserError("it has no measures", where=path, todo=TODO)
    return content


def resume(path: Path, identity: Mapping[str, Any]) -> dict[str, Any]:
    """The content to continue: that of the file, or a new one.

    Args:
        identity: values that the file must have, because other sentences or another model would
            have other measures.
    """
    if not path.exists():
        return {**identity, "measures": {}, "stages": {}}
    content = read(path)
    for name, value in identity.items():
        if content.get(name) != value:
            problem = f"{name} is {content.get(name)} in this analysis, {value} here"
            raise UserError(problem, path, "give another folder with --out")
    return content


def check_heads(counts: list[int], heads: HeadCounts, type_: AttentionType, path: Path) -> None:
    """Reject a file whose heads by layer are not those of the model."""
    if counts != list(heads[type_]):
        raise UserError(
            f"is of another model: it has {counts} heads by layer in {type_} attention, the "
            f"checkpoint has {list(heads[type_])}",
            where=path,
        )
