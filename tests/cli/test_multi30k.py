"""A short training on real text, from the corpus' files to a score."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import USER_DIR, sizes, succeed, train_log
from data.corpus_archives import Sentences

from fairseq_compat.search import SEARCHES, VARIABLE

pytestmark = pytest.mark.slow

TEST = "test_2016_flickr"


def test_multi30k_end_to_end(shared_data: Path, tmp_path: Path) -> None:
    text, binarised, model = (tmp_path / name for name in ("text", "bin", "model"))
    text.mkdir()
    for split, stem, size in (("train", "train", 4000), ("valid", "val", 200), ("test", TEST, 200)):
        for language, lines in Sentences(shared_data / "multi30k", stem).take(size).items():
            (text / f"{split}.{language}").write_text("".join(f"{line}\n" for line in lines))
    succeed(
        "python", "-m", "data_prep.prepare", "--text", text, "--out", binarised,
        "--source-lang=en", "--target-lang=de", "--vocab-size", 1000,
    )  # fmt: skip
    log = succeed(
        "fairseq-train", binarised, *USER_DIR, "--arch=transformer_collab_multi30k",
        *sizes(64, 128), "--key-dim=16", "--share-all-embeddings", "--dropout=0.1",
        "--optimizer=adam", "--lr=0.005", "--lr-scheduler=inverse_sqrt", "--warmup-updates=50",
        "--max-tokens=1500", "--max-update=110",
        "--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1", "--seed=1",
        "--cpu", "--num-workers=0", "--log-format=json", "--log-interval=20",
        "--save-dir", model,
    )  # fmt: skip
    perplexity = float(train_log(log, "valid")[-1]["valid_ppl"])
    assert perplexity < 150, "a model that learnt nothing has a perplexity near 1,000"
    generate = [
        "fairseq-generate", binarised, *USER_DIR, "--path", model / "checkpoint_last.pt", "--cpu",
        "--beam=5", "--max-len-a=0", "--max-len-b=20", "--remove-bpe=sentencepiece",
    ]  # fmt: skip
    output, theirs = (succeed(*generate, **{VARIABLE: name}) for name in SEARCHES)
    found, expected = (re.findall(r"^[HP]-.*", one, re.M) for one in (output, theirs))
    assert len(found) == 400
    assert found == expected, "our search finds fairseq's translations and scores"
    (tmp_path / "generation.txt").write_text(output)
    report = succeed(
        "fairseq-collab", "score", tmp_path / "generation.txt", "--reference",
        binarised / "raw" / "test.de",
    )  # fmt: skip
    assert "200 sentences" in report
    assert "BLEU" in report
    assert "tok:13a" in report
