"""The scripts in examples/, one after the other, and the commands of docs/tutorial.md."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from commands import BIN, REPOSITORY, SETTINGS, sizes, succeed, warm
from documents import blocks

pytestmark = pytest.mark.slow
OPTIMISER = ["--optimizer=adam", "--lr=2e-3", "--max-tokens=2048", "--share-all-embeddings"]
SHORT = ["--cpu", "--max-update=3", "--num-workers=0", "--disable-validation"]


def test_convert_prune_export(tmp_path: Path) -> None:
    def run(*command: str, text: str = "") -> str:
        path = {"PATH": f"{warm()}:{BIN}:/usr/bin:/bin", "PYTHONPATH": str(REPOSITORY)}
        options = {"cwd": tmp_path, "env": {**SETTINGS, **path}, "input": text}
        done = subprocess.run(command, capture_output=True, text=True, **options)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout

    few = ("--train=300", "--valid=40", "--test=40", "--vocab-size=200")
    succeed("fairseq-collab", "data", "demo-data", *few, "--out", tmp_path / "data")
    examples = REPOSITORY / "examples"
    chosen = ["--arch=transformer", *sizes(32, 64), *SHORT, "--save-dir", "transformer"]
    run("fairseq-train", "data", *OPTIMISER, *chosen)
    trained = "transformer/checkpoint_last.pt"
    assert "measured" in run("python", f"{examples}/convert.py", trained, "data", "smaller")
    for name in ("latent", "pruned"):
        arguments = (f"smaller/{name}.pt", "data", f"ct2-{name}")
        lines = run("python", f"{examples}/export.py", *arguments, text="A dog runs.\n" * 2)
        assert len(lines.splitlines()) >= 2, lines


# ---- docs/tutorial.md ----------------------------------------------------------------------------

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
    "'common.seed=choice(1)'": "'common.seed=choice(1)' size=tiny --jobs 1",
    "model=choice(fewer,quarter)'": "model=choice(fewer,quarter)' lr_scheduler.total_num_update=9",
    "fairseq-collab prices": "fairseq-collab prices --sentences 20",
    "fairseq-collab prune": "fairseq-collab prune --sentences 20",
    "fairseq-collab reparametrize": "fairseq-collab reparametrize --sentences 20",
    # after 8 updates, beam searches of the engines end differently
    "--format ct2 --check": "--format ct2",
    "configs/experiment": f"{REPOSITORY}/configs/experiment",
    "python examples": f"python {REPOSITORY}/examples",
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
