"""Multilingual models, with all that fairseq puts into checkpoints, go through every command."""

from __future__ import annotations

import re
from pathlib import Path

import ctranslate2
import pytest
from cli.conftest import ENDING, SIZES
from commands import refuse, succeed
from reliability.test_save import CONTENTS

from fairseq_compat import checkpoints

pytestmark = pytest.mark.slow

TASK = [
    "--task=translation_multi_simple_epoch", "--lang-pairs=en-de,de-en", "--langs=en,de",
    "--encoder-langtok=tgt", "--decoder-langtok", "--sampling-method=temperature",
]  # fmt: skip
ONE = ["--source-lang=en", "--target-lang=de"]


@pytest.fixture(scope="module")
def multilingual(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stock fairseq's model, with every content in its checkpoint."""
    folder = tmp_path_factory.mktemp("multilingual")
    model = ["--arch=transformer", *SIZES, "--share-all-embeddings"]
    succeed("fairseq-train", corpus, *model, *ENDING, *TASK, "--save-dir", folder)
    path = folder / "checkpoint_last.pt"
    state = checkpoints.read(path)
    state["extra_state"]["contents"] = CONTENTS
    checkpoints.save(state, path)
    return path


@pytest.mark.parametrize(
    "words",
    [
        "configs",
        "doctor",
        "cost MODEL",
        "average MODEL --out OUT",
        "reparametrize MODEL DATA --key-dim 8 --out OUT.pt",
        "prune MODEL DATA --random 1 --keep 2 --out OUT.pt",
        "heads MODEL DATA --relevance-sentences 1 --cpu --out OUT",
        "export MODEL --format fairseq --out OUT",
        "export MODEL DATA --format ct2 --out OUT",
        "score MODEL DATA --cpu --run OUT --set task.source_lang=en --set task.target_lang=de",
        "advise MODEL DATA --want cache=0.9 --max-loss 100 --sentences 20 --cpu --out OUT",
        "prices MODEL DATA --sentences 20 --cpu --out OUT",
    ],
    ids=lambda words: words.split()[0],
)
def test_every_command(words: str, multilingual: Path, corpus: Path, tmp_path: Path) -> None:
    """As a user starts it: the variable has it start anew, where others are forks."""
    paths = {"MODEL": str(multilingual), "DATA": str(corpus), "OUT": str(tmp_path / "out")}
    for name, path in paths.items():
        words = words.replace(name, path)
    succeed("fairseq-collab", *words.split(), PYTHONHASHSEED="1")


def test_a_direction_must_be_chosen(multilingual: Path, corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    line = refuse("fairseq-collab", "score", multilingual, corpus, "--cpu", "--run", out)
    assert f"{multilingual}: translates en-de, de-en; choose --s" in line


def test_ctranslate2_translates_alike(multilingual: Path, corpus: Path, tmp_path: Path) -> None:
    out, data = tmp_path / "out", (corpus, "--path", multilingual, "--cpu", *TASK, *ONE)
    output = succeed("fairseq-generate", *data, "--beam=3", "--max-len-a=0", "--max-len-b=20")
    found = {
        int(number): text.split()
        for number, text in re.findall(r"^H-(\d+)\t\S+\t(.*)$", output, re.MULTILINE)
    }
    succeed("fairseq-collab", "export", multilingual, corpus, "--format=ct2", "--out", out)
    lines = (corpus / "raw" / "test.en").read_text().splitlines()
    results = ctranslate2.Translator(str(out)).translate_batch(
        [["__de__", *line.split()] for line in lines],
        target_prefix=[["__de__"]] * len(lines), beam_size=3, max_decoding_length=21,
    )  # fmt: skip
    assert [result.hypotheses[0][1:] for result in results] == [found[n] for n in sorted(found)]


def test_resuming(multilingual: Path, corpus: Path, tmp_path: Path) -> None:
    model = ["--arch=transformer", *SIZES, "--share-all-embeddings", *ENDING, *TASK]
    more = ["--restore-file", multilingual, "--max-update=61", "--save-dir", tmp_path]
    assert "num_updates: 61" in succeed("fairseq-train", corpus, *model, *more)
