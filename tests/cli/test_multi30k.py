"""A short training on real text, from the corpus' files to a score."""

from __future__ import annotations

from pathlib import Path

from commands import USER_DIR, succeed, train_log

SIZES = [
    f"--{side}-{name}={size}"
    for side in ("encoder", "decoder")
    for name, size in (
        ("layers", 1),
        ("embed-dim", 64),
        ("ffn-embed-dim", 128),
        ("attention-heads", 4),
    )
]


def test_multi30k_end_to_end(shared_data: Path, tmp_path: Path) -> None:
    binarised, model = tmp_path / "bin", tmp_path / "model"
    succeed(
        "python", "-m", "data_prep.multi30k", "--from", shared_data / "multi30k",
        "--out", binarised, "--vocab-size", 2000,
    )  # fmt: skip
    log = succeed(
        "fairseq-train", binarised, *USER_DIR, "--arch=transformer_collab_multi30k", *SIZES,
        "--key-dim=16", "--share-all-embeddings", "--dropout=0.1", "--optimizer=adam",
        "--lr=0.005", "--lr-scheduler=inverse_sqrt", "--warmup-updates=50", "--max-tokens=2048",
        "--max-update=120", "--criterion=label_smoothed_cross_entropy", "--label-smoothing=0.1",
        "--seed=1", "--cpu", "--num-workers=0", "--log-format=json", "--log-interval=20",
        "--save-dir", model,
    )  # fmt: skip
    perplexity = float(train_log(log, "valid")[-1]["valid_ppl"])
    assert perplexity < 150, "a model that learnt nothing has a perplexity near 2,000"
    output = succeed(
        "fairseq-generate", binarised, *USER_DIR, "--path", model / "checkpoint_last.pt", "--cpu",
        "--beam=2", "--max-len-a=0", "--max-len-b=20", "--remove-bpe=sentencepiece",
    )  # fmt: skip
    (tmp_path / "generation.txt").write_text(output)
    report = succeed(
        "fairseq-collab", "score", tmp_path / "generation.txt", "--reference",
        binarised / "raw" / "test.de", "--examples", 2,
    )  # fmt: skip
    assert "1000 sentences" in report
    assert "BLEU" in report
    assert "tok:13a" in report
