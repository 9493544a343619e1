"""prepare: text in, a finished folder out, whatever happens in between."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from fairseq.data import indexed_dataset
from refusals import refusing
from text_tools import VOCAB_SIZE, config, error_line, manifest, names, options, run, write_corpus

import data_prep.prepare as prepare_module
from collab_common.errors import UserError
from collab_common.files import sha256
from collab_common.folder import MANIFEST
from data_prep import subword
from data_prep.binarise import count_sentences
from data_prep.faults import Action, Kind, Policy
from data_prep.prepare import prepare
from data_prep.validate import validate

# --- what is made --------------------------------------------------------------------------


def test_folder(prepared: Path, corpus: Path) -> None:
    made = manifest(prepared)
    assert made["versions"]["fairseq"] == "0.12.2"
    assert made["versions"]["sentencepiece"] == sentencepiece.__version__
    assert made["inputs"]["train.en"]["sha256"] == sha256(corpus / "train.en")
    files = {
        path.relative_to(prepared).as_posix() for path in prepared.rglob("*") if path.is_file()
    }
    assert set(made["outputs"]) == files - {MANIFEST}
    for name, found in made["outputs"].items():
        assert found == {
            "sha256": sha256(prepared / name),
            "bytes": (prepared / name).stat().st_size,
        }
    for split, lines in (("train", 300), ("valid", 20), ("test", 20), ("test1", 10)):
        assert made["stages"][split]["kept"] == made["stages"][split]["binarised"] == lines
        assert count_sentences(prepared / f"{split}.en-de.de.idx") == lines
    assert sha256(prepared / "dict.en.txt") == sha256(prepared / "dict.de.txt")
    assert names(prepared.parent) == {"bin"}, "no lock, no temporary folder"


def test_the_header_alone_of_an_index_is_read(prepared: Path, tmp_path: Path) -> None:
    """Of 36 million pairs an index has 432 MB."""
    index = tmp_path / "train.idx"
    shutil.copy(prepared / "train.en-de.en.idx", index)
    with index.open("ab") as file:
        file.truncate(1 << 40)  # of holes, more than any memory
    assert count_sentences(index) == 300


def test_references_are_the_raw_text(prepared: Path, corpus: Path) -> None:
    assert names(prepared / "raw") == {
        f"{s}.{x}" for s in ("valid", "test", "test1") for x in ("en", "de")
    }
    assert (prepared / "raw/test1.de").read_bytes() == (corpus / "test.1.de").read_bytes()


def test_nothing_tells_where_it_was_made(prepared: Path) -> None:
    for path in prepared.rglob("*"):
        if path.is_file():
            assert str(prepared.parent).encode() not in path.read_bytes(), path


def test_same_as_fairseq_and_sentencepiece_by_hand(
    prepared: Path, corpus: Path, tmp_path: Path
) -> None:
    """The model equals one trained from the files' names, and the pieces are its pieces."""
    sentencepiece.SentencePieceTrainer.train(
        input=[str(corpus / "train.en"), str(corpus / "train.de")],
        model_prefix=str(tmp_path / "m"),
        model_type="bpe",
        vocab_size=VOCAB_SIZE,
        character_coverage=1.0,
        num_threads=1,
        minloglevel=1,
    )
    ours, theirs = (
        sentencepiece.SentencePieceProcessor(model_file=str(path))
        for path in (prepared / "spm.model", tmp_path / "m.model")
    )
    pieces = [[m.id_to_piece(i) for i in range(m.get_piece_size())] for m in (ours, theirs)]
    assert pieces[0] == pieces[1]
    counts: dict[str, int] = {}
    for lang in ("en", "de"):
        for line in (corpus / f"train.{lang}").read_text().splitlines():
            for piece in theirs.encode(line, out_type=str):
                counts[piece] = counts.get(piece, 0) + 1
    rows = [line.split() for line in (prepared / "dict.en.txt").read_text().splitlines()]
    assert {word: int(n) for word, n in rows if not word.startswith("madeupword")} == counts


# --- skipping and refusing -----------------------------------------------------------------


def test_finished_is_skipped(
    prepared: Path,
    corpus: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(prepare_module, "_build", lambda *_: pytest.fail("built again"))
    prepare(config(corpus, prepared))
    assert "up to date" in capsys.readouterr().out
    prepare(config(corpus, prepared, workers=2))  # makes no difference to the result


def test_changed_input_is_refused(corpus: Path, prepared: Path, tmp_path: Path) -> None:
    text, out = tmp_path / "text", tmp_path / "bin"
    shutil.copytree(corpus, text)
    shutil.copytree(prepared, out)
    (text / "valid.de").write_text((text / "valid.de").read_text().upper())
    error = error_line(run("prepare", *options(text, out)), "prepare")
    assert error.endswith(
        f"{out}: made from something else (inputs.valid.de: changed); "
        "give --force to rebuild it, or choose another --out"
    )
    assert manifest(out) == manifest(prepared)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"vocab_size": 90}, "options.vocab_size: 100 there, 90 asked for"),
        ({"source_lang": "de", "target_lang": "en"}, "options.source_lang: 'en' there, 'de' asked"),
        ({"policy": Policy({Kind.COPY: Action.DROP})}, "options.validation.on.copy: 'count' there"),
        ({"origin": {"seed": 2}}, "origin.seed: None there, 2 asked for"),
        ({"splits": {"train": "train", "valid": "test"}}, "options.splits.valid: 'valid' there"),
    ],
)
def test_changed_options_are_refused(
    change: dict[str, Any], words: str, corpus: Path, prepared: Path
) -> None:
    with refusing(words):
        prepare(config(corpus, prepared, **change))


def test_damaged_folder_is_refused(corpus: Path, prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "bin"
    shutil.copytree(prepared, out)
    with (out / "train.en-de.de.bin").open("r+b") as stream:
        stream.write(b"\xff")
    (out / "test.en-de.en.idx").unlink()
    with pytest.raises(UserError, match=r"no longer what its manifest says \((.*)\)") as refused:
        prepare(config(corpus, out))
    assert "test.en-de.en.idx: missing, train.en-de.de.bin: changed" in str(refused.value)


@pytest.mark.usefixtures("no_fairseq")
def test_force_rebuilds(corpus: Path, prepared: Path, tmp_path: Path) -> None:
    out = tmp_path / "bin"
    shutil.copytree(prepared, out)
    prepare(config(corpus, out, vocab_size=90, force=True))
    assert manifest(out)["options"]["vocab_size"] == 90
    assert names(tmp_path) == {"bin"}


def test_foreign_folder_is_left_alone(corpus: Path, tmp_path: Path) -> None:
    out = tmp_path / "bin"
    out.mkdir()
    (out / "thesis.txt").write_text("mine")
    with pytest.raises(UserError, match="was not made here"):
        prepare(config(corpus, out, force=True))
    assert names(out) == {"thesis.txt"}


# --- faulty text ---------------------------------------------------------------------------

TRAIN_FAULTS = {
    "cr": (b"ba\rde .", "train.de:3: byte"),
    "empty": (b"", "train.de:3: byte"),
    "utf8": (b"b\xe4 .", "train.de:3: byte"),
    "lines": (b"ba .\nde .", "unequal line counts"),
}


@pytest.mark.parametrize("name", TRAIN_FAULTS)
def test_faulty_text_is_refused(name: str, tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    line, words = TRAIN_FAULTS[name]
    lines = (text / "train.de").read_bytes().split(b"\n")
    lines[2] = line
    (text / "train.de").write_bytes(b"\n".join(lines))
    assert words in error_line(run("prepare", *options(text, tmp_path / "bin")), "prepare")
    assert names(tmp_path) == {"text"}


@pytest.mark.usefixtures("no_fairseq")
def test_drops_in_training_only(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    for split in ("train", "test"):
        lines = (text / f"{split}.en").read_text().split("\n")
        lines[5] = ""
        lines[7] = "\u200b"  # not empty, but sentencepiece makes nothing of it
        (text / f"{split}.en").write_text("\n".join(lines))
    policy = Policy({Kind.EMPTY: Action.DROP})
    stages = manifest(prepare(config(text, tmp_path / "bin", policy=policy)))["stages"]
    assert stages["train"] == {
        "read": 300,
        "found": {"empty": 1},
        "dropped": {"empty": 1},
        "kept": 299,
        "segmented": {"read": 299, "without_pieces": 1, "dropped": 1},
        "binarised": 298,
    }
    assert stages["test"] == {
        "read": 20,
        "found": {"empty": 1},
        "dropped": {},
        "kept": 20,
        "segmented": {"read": 20, "without_pieces": 2, "dropped": 0},
        "binarised": 20,
    }


def test_held_out_text_that_cannot_stay_is_refused(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    (text / "test.de").write_bytes((text / "test.de").read_bytes().replace(b" ", b"\r", 1))
    policy = Policy({Kind.CR: Action.DROP})
    with pytest.raises(UserError, match=r"test\.de:1: byte .* never dropped$"):
        prepare(config(text, tmp_path / "bin", policy=policy))


def test_line_without_pieces_is_refused(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    with (text / "valid.de").open("a") as de, (text / "valid.en").open("a") as en:
        de.write("\u200b\n")
        en.write("ba\n")
    with pytest.raises(UserError, match=r"valid\.de:21: nothing is left of this line"):
        prepare(config(text, tmp_path / "bin"))


@pytest.mark.parametrize("split", ["train", "valid", "test"])
def test_empty_sets_are_refused(split: str, tmp_path: Path) -> None:
    """fairseq would end in a traceback; also where all lines are dropped."""
    text = write_corpus(tmp_path / "text")
    for lang in ("en", "de"):
        (text / f"{split}.{lang}").write_text("")
    with pytest.raises(UserError, match=f"{split}.en: no sentence pair for the {split} set"):
        prepare(config(text, tmp_path / "bin"))
    assert names(tmp_path) == {"text"}


@pytest.mark.parametrize("split", ["train", "valid"])
def test_the_same_text_on_both_sides_is_refused(split: str, tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    shutil.copy(text / f"{split}.en", text / f"{split}.de")
    with pytest.raises(UserError, match=rf"{split}\.de: is the same text as .*{split}\.en"):
        prepare(config(text, tmp_path / "bin"))


def test_a_line_is_named_by_its_own_file(tmp_path: Path) -> None:
    """Of several training texts, and though lines before it were dropped."""
    text = write_corpus(tmp_path / "text")
    for lang in ("en", "de"):
        lines = (text / f"train.{lang}").read_text().splitlines()
        lines[1:1] = [""] if lang == "en" else ["leer"]
        lines[4:4] = ["ba ."] if lang == "en" else ["\u200b"]
        (text / f"b.{lang}").write_text("".join(line + "\n" for line in lines))
    policy = Policy({Kind.EMPTY: Action.DROP})
    report = validate(text / "b.en", text / "b.de", policy)
    assert [report.original_line(n) for n in (1, 2, 3, 4)] == [1, 3, 4, 5]
    reports = [validate(text / "train.en", text / "train.de"), report]
    assert prepare_module._line_of(reports, 1, 304) == f"{text}/b.de:5"
    splits = {"train": "train", "valid": ("b",), "test": "test"}
    refused = Policy({Kind.EMPTY: Action.REFUSE})
    for lang in ("en", "de"):
        lines = (text / f"b.{lang}").read_text().splitlines()
        (text / f"b.{lang}").write_text(
            "".join(f"{line}\n" for line in lines if line not in ("", "leer"))
        )
    with pytest.raises(UserError, match=rf"{text}/b\.de:4: nothing is left of this line"):
        prepare(config(text, tmp_path / "bin", splits=splits, policy=refused))


def test_bad_bytes_cannot_be_counted_away(corpus: Path, tmp_path: Path) -> None:
    done = run("prepare", *options(corpus, tmp_path / "bin"), "--on-cr", "count")
    assert "--on-cr count: such a line cannot be binarised" in error_line(done, "prepare")


def test_of_very_long_texts_every_nth_line_is_learnt_from(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts, model = [corpus / "train.en", corpus / "train.de"], tmp_path / "spm.model"
    third = tmp_path / "third.txt"
    lines = b"".join(path.read_bytes() for path in texts).splitlines(keepends=True)
    third.write_bytes(b"".join(lines[2::3]))
    subword.train([third], VOCAB_SIZE, model)
    expected = model.read_bytes()
    monkeypatch.setattr(subword, "MOST_LINES", 299)  # of 600: a half would be one too many
    told = subword.train(texts, VOCAB_SIZE, model)
    assert (told["lines"], told["every"]) == (600, 3)
    assert model.read_bytes() == expected


def test_long_lines_left_out_of_training_are_told(tmp_path: Path) -> None:
    text = write_corpus(tmp_path / "text")
    with (text / "train.en").open("a") as stream:
        stream.write("ba " * 2000 + "\n")
    model = tmp_path / "model"
    told = subword.train([text / "train.en", text / "train.de"], VOCAB_SIZE, model)
    assert (told["lines"], told["lines_left_out"], told["pieces"]) == (601, 1, VOCAB_SIZE)


def test_vocabulary_too_large(corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="cannot learn a vocabulary of 9999") as refused:
        prepare(config(corpus, tmp_path / "bin", vocab_size=9999))
    assert "try another --vocab-size" in str(refused.value)
    assert "\n" not in str(refused.value)


# --- which files ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("splits", "words"),
    [
        ({"train": "train"}, "no valid set"),
        ({"train": "train", "valid": "absent"}, "absent.en: no such file"),
        ({"train": "train", "valid": "valid", "test1": "test"}, "name them test"),
    ],
)
def test_missing_splits(splits: dict[str, str], words: str, corpus: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=words):
        prepare(config(corpus, tmp_path / "bin", splits=splits))


def test_training_texts_are_joined(corpus: Path, tmp_path: Path) -> None:
    """In the order given, wherever they stand below the text folder; each is checked."""
    text = tmp_path / "text"
    for name, stem in (("one", "train"), ("two", "train"), ("two", "test")):
        (text / name).mkdir(parents=True, exist_ok=True)
        for lang in ("en", "de"):
            shutil.copy(corpus / f"{stem}.{lang}", text / name / f"{stem}.{lang}")
    with (text / "two/train.en").open("a") as source, (text / "two/train.de").open("a") as target:
        source.write("\n")
        target.write("leer\n")
    splits = ("train=one/train", "train=two/train", "train=two/test", "valid=two/test")
    out = tmp_path / "bin"
    chosen = [word for split in splits for word in ("--split", split)]
    refused = run("prepare", *options(text, out), *chosen)
    assert "two/train.en:301: byte" in error_line(refused, "prepare")
    assert not out.exists()
    done = run("prepare", *options(text, out), *chosen, "--on-empty", "drop")
    assert done.returncode == 0, done.stderr
    made = manifest(out)
    assert made["options"]["splits"] == {
        "train": ["one/train", "two/train", "two/test"],
        "valid": "two/test",
    }
    assert {f"{stem[6:]}.en" for stem in splits} <= set(made["inputs"])
    assert made["stages"]["train"]["read"] == 621
    assert made["stages"]["train"]["dropped"] == {"empty": 1}
    assert made["stages"]["train"]["binarised"] == 620
    last = indexed_dataset.make_dataset(str(out / "train.en-de.en"), "mmap")[-1]
    assert (
        last.tolist()
        == indexed_dataset.make_dataset(str(out / "valid.en-de.en"), "mmap")[-1].tolist()
    ), "the last text comes last"


def test_only_training_texts_are_joined(corpus: Path, tmp_path: Path) -> None:
    twice = ("--split", "train=train", "--split", "valid=valid", "--split", "valid=test")
    line = error_line(run("prepare", *options(corpus, tmp_path / "bin"), *twice), "prepare")
    assert line.endswith(
        "only training texts are joined; give a second test set a name of its own, test1"
    )


def test_usage(corpus: Path, tmp_path: Path) -> None:
    done = run("prepare", *options(corpus, tmp_path / "bin"), "--split", "tune=valid")
    assert "is not NAME=STEM" in error_line(done, "prepare", status=2)
    done = run("prepare", *options(corpus, tmp_path / "bin"), "--split", f"train={corpus}/train")
    assert "STEM is looked for below --text" in error_line(done, "prepare", status=2)
    error_line(run("prepare"), "prepare", status=2)


# --- the real thing ------------------------------------------------------------------------


DICTIONARY = "d16f9d9da19d2adf361a8d5b7155f0b8dd10ac5876af4daba005f85cff1f4977"
TRAIN_DE = "c58f5e09040b8e1e531dd07708aa310c8963f55c1990fffd0dc810e854753d28"


@pytest.mark.slow
def test_multi30k_from_a_folder(shared_data: Path, tmp_path: Path) -> None:
    """End to end through the command."""
    out = tmp_path / "bin"
    done = run("multi30k", "--from", shared_data / "multi30k", "--out", out)
    assert done.returncode == 0, done.stderr
    stages = manifest(out)["stages"]
    assert {split: stage["binarised"] for split, stage in stages.items()} == {
        "train": 29_000,
        "valid": 1_014,
        "test": 1_000,
        "test1": 1_000,
    }
    assert (out / "raw/test1.de").read_bytes().count(b"\n") == 1_000
    # recorded from sentencepiece 0.2.3 and fairseq 0.12.2, each run by hand
    if sentencepiece.__version__ == "0.2.3":
        assert manifest(out)["outputs"]["dict.en.txt"]["sha256"] == DICTIONARY
        assert manifest(out)["outputs"]["train.en-de.de.bin"]["sha256"] == TRAIN_DE
