"""Peak memory in MB of a process that loads an exported folder and translates one sentence.

    python results/peak.py onnx-int8 FOLDER TOKENS

prints it.  Run it as a process of its own: torch is not loaded, as on a machine of a user.
Linux only.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

BEAM = 5
#: The first number of a dictionary that is a word.
FIRST = 4


def onnx(folder: Path, length: int) -> None:
    """With the folder's own program."""
    sys.path.insert(0, str(folder))
    model = import_module("translate").Translator(folder, 1)
    end = model.sources["</s>"]
    sentence = [*range(FIRST, FIRST + length), end]
    model.search([sentence], BEAM, max_len_a=0, max_len_b=length, min_len=length)


def ct2(folder: Path, length: int, compute_type: str) -> None:
    """In CTranslate2."""
    [file] = folder.glob("s*_vocabulary.json")  # of the source, or of both sides
    words = json.loads(file.read_text(encoding="utf-8"))
    kinds = {"compute_type": compute_type, "intra_threads": 1}
    model = import_module("ctranslate2").Translator(str(folder), inter_threads=1, **kinds)
    limits = dict.fromkeys(("min_decoding_length", "max_decoding_length"), length + 1)
    sentence = [*words[FIRST : FIRST + length], "</s>"]
    model.translate_batch([sentence], beam_size=BEAM, max_input_length=0, **limits)


def main(argv: Sequence[str]) -> int:
    engine, folder, length = argv
    name, _, kind = engine.partition("-")
    if name == "onnx":
        onnx(Path(folder), int(length))
    else:
        ct2(Path(folder), int(length), kind)
    if "torch" in sys.modules:
        raise RuntimeError("torch is loaded, and its memory would count")
    print(peak())
    return 0


def peak() -> float:
    """Of this process, in MB: ``getrusage`` would count the program that started it."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)
    assert found is not None
    return round(int(found[1]) * 1024 / 1e6, 1)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
