"""Folders of runs as a sweep leaves them, written by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from collab_lab.metrics.translation_scores import score
from collab_lab.runs.record import Record

MODEL_DIM = 128
REFERENCES = [f"Satz {i} hat genau {i + 3} kurze Worte und endet hier." for i in range(40)]
FACTS: dict[str, Any] = {
    "task": "translation",
    "run": "run",
    "arch": "transformer",
    "heads": 8,
    "heads_by_type": {"decoder": [8, 8, 8]},
    "model_dim": MODEL_DIM,
    "data": "toy",
    "data_sha256": "0123abcd",
    "subset": "test",
    "reference": "reference.txt",
    "hypotheses": "translations.txt",
    "sentences": 4,
    "bleu_signature": "tok:13a|version:2.6.0",
    "chrf": 50.0,
    "chrf_signature": "nc:6|version:2.6.0",
    "length_ratio": 1.0,
    "attention_parameters": 500,
    "value_bytes_per_target_token": 12 * MODEL_DIM,
    "cache_share": 0.75,
    "multiply_adds_length": 30,
    "train_updates": 4240,
    "epochs": 16,
    "valid_loss": 4.0,
    "averaged": ["checkpoint15.pt", "checkpoint16.pt"],
    "beam": 5,
    "lenpen": 1.0,
    "generation": {},
    "commit": "c0ffee",
    "versions": {"torch": "2.13.0"},
    "hardware": "some processor",
    "date": "2026-11-21",
}


def write_run(
    parent: Path, method: str, key_dim: int, seed: int = 1, bleu: float = 40.0, **facts: Any
) -> Path:
    """A finished run, without translations."""
    folder = start_run(parent, f"{method}_{key_dim}_{seed}")
    content = facts_of(method, key_dim, seed, bleu=float(bleu), **facts)
    (folder / "score.json").write_text(json.dumps({**content, "run": folder.name}))
    return folder


def facts_of(method: str, key_dim: int, seed: int = 1, **facts: Any) -> dict[str, Any]:
    """What ``score.json`` says."""
    return {
        **FACTS,
        "method": method,
        "key_dim": key_dim,
        "seed": seed,
        "bleu": 40.0,
        "parameters": 1000 + key_dim,
        "key_bytes_per_target_token": 12 * key_dim,
        "multiply_adds": 10_000 + key_dim,
        "overrides": {"model": method, "model.key_dim": str(key_dim), "common.seed": str(seed)},
        **facts,
    }


def some_record(**facts: Any) -> Record:
    """A record of a translation."""
    return Record(**facts_of("collab", 64, **facts))


def start_run(parent: Path, name: str, **failed: str) -> Path:
    """A run that is not finished, or ``failed`` with a verdict and a reason."""
    folder = parent / name
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"task: {{data: {folder}}}\n")
    if failed:
        (folder / "failed.json").write_text(json.dumps(failed))
    return folder


def spoilt(wrong: int, start: int = 0) -> list[str]:
    """Translations of which ``wrong`` are not the reference's, those from ``start`` on."""
    bad = range(start, start + wrong)
    return [
        text.replace("kurze Worte", "rote") if i in bad else text
        for i, text in enumerate(REFERENCES)
    ]


def write_sweep(parent: Path) -> Path:
    """Runs of two methods, of which collaborative heads are the better; a third one failed."""
    for method, wrong in (("concatenated", 20), ("collab", 2)):
        write_translations(write_run(parent, method, 64), spoilt(wrong), REFERENCES)
    start_run(parent, "collab_32_1", verdict="failed", reason="out of memory")
    return parent


def write_translations(run: Path, hypotheses: list[str], references: list[str]) -> Path:
    """Give a finished run translations, and the scores that they have."""
    (run / "translations.txt").write_text("".join(f"{line}\n" for line in hypotheses))
    (run / "reference.txt").write_text("".join(f"{line}\n" for line in references))
    facts = json.loads((run / "score.json").read_text())
    found = score(hypotheses, references)
    facts |= {"bleu": found.bleu, "chrf": found.chrf, "sentences": len(references)}
    (run / "score.json").write_text(json.dumps(facts))
    return run


def write_generation(path: Path, hypotheses: list[str]) -> Path:
    """The lines of ``fairseq-generate`` that count."""
    path.write_text("".join(f"D-{i}\t-0.5\t{line}\n" for i, line in enumerate(hypotheses)))
    return path
