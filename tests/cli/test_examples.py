"""The scripts in examples/: convert, prune and export, one after the other."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from commands import BIN, REPOSITORY, SETTINGS, sizes, succeed, warm

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
