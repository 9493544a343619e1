"""The commands of docs/tutorial.md."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from commands import BIN, REPOSITORY, SETTINGS, warm
from documents import blocks

pytestmark = pytest.mark.slow
TUTORIAL = REPOSITORY / "docs" / "tutorial.md"
#: What is made smaller for the test.
SMALLER = {
    "bash recipes/setup.sh            # once": "",
    "source .venv/bin/activate": "",
    "pip install --constraint constraints.txt ctranslate2": "",
    "data multi30k": "data demo-data --train 300 --valid 40 --test 40",
    "--vocab-size 4000": "--vocab-size 200",
    "max_update=3400": "max_update=8",
    "max_update=250": "max_update=2",
    "'common.seed=choice(1)'": "'common.seed=choice(1)' size=tiny model.encoder_layers=1 "
    "model.encoder_embed_dim=32 generation.max_len_b=5 --jobs 1",
    "--max-len-a 2 --max-len-b 20 --bpe": "--max-len-b 5 --bpe",
    "model=choice(fewer,quarter)'": "model=choice(fewer,quarter)' lr_scheduler.total_num_update=9",
    "fairseq-collab prices": "fairseq-collab prices --sentences 20",
    "fairseq-collab shrink": "fairseq-collab shrink --sentences 20",
    "--cache 0.25": "--cache 0.5",  # it is tiny
    # after 8 updates, beam searches of the engines end differently
    "--format ct2 --check": "--format ct2",
    "configs/experiment": f"{REPOSITORY}/configs/experiment",
}


def test_its_commands_run(tmp_path: Path) -> None:
    script = "\n".join(blocks(TUTORIAL, "bash"))
    for words, fewer in SMALLER.items():
        assert words in script, words
        script = script.replace(words, fewer)
    environment = {**os.environ, **SETTINGS, "PATH": f"{warm()}:{BIN}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    for shown in (
        *("seed-1: BLEU", "of the KV cache", "validation loss"),
        *("| chrF |", "in CTranslate2", "D-0"),
    ):
        assert shown in done.stdout, shown
