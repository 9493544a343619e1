"""The corpus on disk: a folder that is finished and described by its manifest, or not there."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from collab_common.errors import UserError
from collab_common.files import fingerprint_tree, read_json
from collab_common.folder import MANIFEST, build_folder
from data_prep.embedded.corpus import splits
from data_prep.embedded.pairs import Pair, conllu, pharaoh

MINE = {"corpus": "data_prep.embedded"}  # in a manifest: the folder may be replaced


@dataclass(frozen=True)
class Request:
    train: int = 20000
    valid: int = 500
    test: int = 500
    seed: int = 1


def write(out: Path, request: Request) -> bool:
    """Writes the corpus; False if it stands there already, finished and unchanged.

    A corpus of another request, or a damaged one, is replaced; anything else is refused.
    """
    grammar = fingerprint_tree(Path(__file__).parent)  # another grammar makes another corpus
    identity = {
        "options": asdict(request),
        "inputs": {name: {"sha256": file["sha256"]} for name, file in grammar.items()},
    }

    def build(folder: Path) -> dict[str, object]:
        for name, pairs in splits(**asdict(request)).items():
            for suffix, text in _texts(name, pairs).items():
                (folder / f"{name}.{suffix}").write_text(text, encoding="utf-8", newline="\n")
        return dict(MINE)

    try:
        return build_folder(out, identity, build)
    except UserError:
        if not _is_mine(out):
            raise
        return build_folder(out, identity, build, force=True)


def _is_mine(out: Path) -> bool:
    manifest = out / MANIFEST
    return manifest.is_file() and MINE.items() <= read_json(manifest).items()


def _texts(split: str, pairs: list[Pair]) -> dict[str, str]:
    return {
        "en": "".join(p.english + "\n" for p in pairs),
        "de": "".join(p.german + "\n" for p in pairs),
        "tok.de": "".join(" ".join(p.german_tokens) + "\n" for p in pairs),
        "align": "".join(pharaoh(p) + "\n" for p in pairs),
        "conllu": "".join(conllu(p, f"{split}-{i}") for i, p in enumerate(pairs, start=1)),
    }
