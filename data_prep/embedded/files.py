"""The corpus on disk: a folder that is finished and described by its manifest, or not there."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from collab_common.errors import UserError
from collab_common.files import fingerprint_tree, read_json
from collab_common.folder import MANIFEST, build_folder
from data_prep.embedded.corpus import Pair, conllu, pharaoh, splits

MINE = {"corpus": "data_prep.embedded"}  # in a manifest: the folder may be replaced


class Request(NamedTuple):
    """Sizes of the splits, and the random seed."""

    train: int = 20000
    valid: int = 500
    test: int = 500
    seed: int = 1


def make(out: Path, request: Request, *, force: bool = False) -> bool:
    """Writes the corpus; False if it stands there already, finished and unchanged.

    Raises UserError if something else stands there, unless it is a corpus and ``force`` is given.
    """
    grammar = fingerprint_tree(Path(__file__).parent)  # another grammar makes another corpus
    identity = {
        "options": request._asdict(),
        "inputs": {name: {"sha256": file["sha256"]} for name, file in grammar.items()},
    }

    def build(folder: Path) -> dict[str, object]:
        for name, pairs in splits(*request).items():
            for suffix, text in _texts(name, pairs).items():
                (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8", newline="\n")
        return dict(MINE)

    return build_folder(out, identity, build, force=force)


def write(out: Path, request: Request) -> bool:
    """As `make`, but a corpus of another request, or a damaged one, is replaced."""
    try:
        return make(out, request)
    except UserError:
        manifest = out / MANIFEST
        if not manifest.is_file() or not MINE.items() <= read_json(manifest).items():
            raise
        return make(out, request, force=True)


def _texts(split: str, pairs: list[Pair]) -> dict[str, str]:
    return {
        "en": "".join(p.english + "\n" for p in pairs),
        "de": "".join(p.german + "\n" for p in pairs),
        "tok.de": "".join(" ".join(p.german_tokens) + "\n" for p in pairs),
        "align": "".join(pharaoh(p) + "\n" for p in pairs),
        "conllu": "".join(conllu(p, f"{split}-{i}") for i, p in enumerate(pairs, start=1)),
    }
