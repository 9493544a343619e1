"""``fairseq-collab export``: fairseq's own commands read the result without ``--user-dir``."""

from __future__ import annotations

import random
import re
from pathlib import Path

from commands import REPOSITORY, USER_DIR, succeed

STORED = REPOSITORY / "tests" / "stored" / "transformer_collab_1"
CHANCE = random.Random(5)
SENTENCES = [" ".join(f"w{CHANCE.randrange(12)}" for _ in range(n % 9 + 1)) for n in range(60)]


def translate(checkpoint: Path, *options: object) -> list[tuple[str, str]]:
    output = succeed(
        "fairseq-interactive", STORED, *options, "--path", checkpoint, "--source-lang=en",
        "--target-lang=de", "--cpu", "--beam=5", "--buffer-size=60", "--batch-size=20",
        stdin="".join(f"{sentence}\n" for sentence in SENTENCES),
    )  # fmt: skip
    return re.findall(r"^H-(\d+)\t[^\t]*\t(.*)$", output, re.MULTILINE)


def test_the_exported_model_translates_alike_without_the_plug_in(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    export = ["fairseq-collab", "export", STORED / "checkpoint.pt", "--format=fairseq"]
    succeed(*export, "--out", plain)
    expected = translate(STORED / "checkpoint.pt", *USER_DIR)
    assert len(expected) == len(SENTENCES)
    assert len({text for _, text in expected}) > 40
    assert translate(plain / "model.pt") == expected
