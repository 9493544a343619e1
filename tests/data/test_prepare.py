"""prepare: text in, a finished folder out, or none, whatever happens in between."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import BIN
from fairseq.data import indexed_dataset
from refusals import refusing
from text_tools import (
    error_line,
    manifest,
    names,
    numbers_said,
    options,
    prepare_text,
    replace_line,
    run,
    wait_for,
    write_corpus,
)

import data_prep.prepare as prepare_module
from collab_common import binarised
from collab_common.files import sha256
from collab_common.folder import MANIFEST
from data_prep import multi30k
from data_prep.check import check_sets
from data_prep.corpus import SENTENCEPIECE, SUBWORD_NMT
from data_prep.parallel_text import find_files, lines_of, pair_in


def sentences(folder: Path, split: str, lang: str) -> Any:
    """A binarised set, as fairseq reads it."""
    return indexed_dataset.make_dataset(str(folder / f"{split}.en-de.{lang}"), "mmap")


def test_folder(prepared: Path, corpus: Path) -> None:
    made = manifest(prepared)
    assert made["versions"]["fairseq"] == "0.12.2"
    assert made["inputs"]["train.en"]["sha256"] == sha256(corpus / "train.en")
    files = {
        path.relative_to(prepared).as_posix() for path in prepared.rglob("*") if path.is_file()
    }
    assert set(made["outputs"]) == files - {MANIFEST}
    for split, lines in (("train", 300), ("valid", 20), ("test", 20), ("test1", 10)):
        assert made["sets"][split]["kept"] == lines
        assert len(sentences(prepared, split, "de")) == lines
    assert sha256(prepared / "dict.en.txt") == sha256(prepared / "dict.de.txt")
    assert names(prepared.parent) == {"bin"}, "no lock, no temporary folder"
    assert names(prepared / "raw") == {
        f"{s}.{x}" for s in ("valid", "test", "test1") for x in ("en", "de")
    }
    assert (prepared / "raw/test1.de").read_bytes() == (corpus / "test.1.de").read_bytes()
    for name in files:
        assert str(prepared.parent).encode() not in (prepared / name).read_bytes(), name


@pytest.mark.slow
@pytest.mark.parametrize("kind", [SENTENCEPIECE, SUBWORD_NMT])
def test_like_another_folder(kind: str, corpus: Path, tmp_path: Path) -> None:
    """Other text in its subwords and symbols; one set is enough."""
    first, text = tmp_path / "first", write_corpus(tmp_path / "text", seed=2)
    prepare_text(corpus, first, subwords=kind)
    replace_line(text / "test.de", 1, b"Xylophone .")
    replace_line(text / "test.de", 2, "Bu\u0308 Lo .".encode())  # letters apart from their accents
    replace_line(text / "test.de", 3, "Ba\u2581lo .".encode())  # sentencepiece's own sign
    for path in (*text.glob("train.*"), *text.glob("valid.*")):
        path.unlink()
    done = run("prepare", *options(text, tmp_path / "tests")[:-2], "--like", first)
    assert done.returncode == 0, done.stderr
    assert numbers_said(done.stdout, "test", "accents") == [1]
    assert numbers_said(done.stdout, "test", "come back") == [1] * (kind == SENTENCEPIECE)
    for fault in ("accents", "come back"):
        assert not numbers_said(done.stdout, "test1", fault)
    before, made = manifest(first)["outputs"], manifest(tmp_path / "tests")
    model = "code" if kind == SUBWORD_NMT else "spm.model"
    for name in (model, "dict.en.txt", "dict.de.txt"):
        assert made["outputs"][name] == before[name]
    assert set(made["sets"]) == {"test", "test1"}
    (first / model).write_bytes((first / model).read_bytes() + b"\n")
    with refusing(f"inputs.like/{model}: changed"):
        prepare_text(text, tmp_path / "tests", subwords=kind, like=first)


# --- skipping and refusing -----------------------------------------------------------------


@pytest.mark.usefixtures("no_fairseq")
def test_changed_input_is_refused_unless_forced(tmp_path: Path) -> None:
    text, out = write_corpus(tmp_path / "text"), tmp_path / "bin"
    prepare_text(text, out)
    before = manifest(out)
    replace_line(text / "valid.de", 1, b"Ba .")
    error = error_line(run("prepare", *options(text, out)), "prepare")
    assert f"{out}: " in error
    assert manifest(out) == before
    prepare_text(text, out, force=True)
    assert manifest(out)["inputs"] != before["inputs"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"splits": {"train": "train"}}, "valid"),
        ({"splits": {"train": "train", "valid": "absent"}}, "absent.en"),
        ({"splits": {"train": "train", "valid": "valid", "test1": "test"}}, "test"),
        ({"languages": ("en", "en")}, "'en'"),
        ({"languages": ("en", "pt-BR")}, "pt-BR"),
        ({"languages": ("zh.TW", "en")}, "zh.TW"),
        ({"like": Path("tests")}, "tests/spm.model"),
        ({"vocab_size": 9999}, "9999"),
    ],
)
def test_impossible_requests(
    change: dict[str, Any], words: str, corpus: Path, tmp_path: Path
) -> None:
    with refusing(words):
        prepare_text(corpus, tmp_path / "bin", **change)


def test_line_without_pieces(tmp_path: Path) -> None:
    """Nothing is left of it after normalisation: an error outside the training text."""
    text = write_corpus(tmp_path / "text")
    replace_line(text / "valid.de", 7, "\u200b".encode())
    with refusing("valid.de:7"):
        prepare_text(text, tmp_path / "bin")


# --- interruptions -------------------------------------------------------------------------


@pytest.mark.slow
def test_killed_then_run_again(corpus: Path, prepared: Path, tmp_path: Path) -> None:
    """SIGKILL while fairseq works, then a run that makes the same files."""
    out = tmp_path / "bin"
    command = [BIN / "fairseq-collab", "data", "prepare", *map(str, options(corpus, out))]
    process = subprocess.Popen(command, start_new_session=True)
    assert wait_for(lambda: list(tmp_path.glob(".bin.new-*/preprocess.log")))
    (temporary,) = tmp_path.glob(".bin.new-*")
    os.killpg(process.pid, signal.SIGSTOP)
    second = run("prepare", *options(corpus, out))
    assert f"(pid {process.pid})" in error_line(second, "prepare")
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert names(tmp_path) == {temporary.name, ".bin.lock"}
    done = run("prepare", *options(corpus, out))
    assert done.returncode == 0, done.stderr
    assert manifest(out)["outputs"] == manifest(prepared)["outputs"]
    assert names(tmp_path) == {"bin"}


def test_fairseq_failure_is_reported(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The child's status and last words; here it does not even start."""
    monkeypatch.setattr("data_prep.prepare.sys.executable", str(tmp_path / "python"))
    (tmp_path / "python").write_text("#!/bin/sh\necho first; echo out of luck >&2; exit 3\n")
    (tmp_path / "python").chmod(0o755)
    with refusing("fairseq-preprocess", "status 3", "out of luck"):
        prepare_text(corpus, tmp_path / "bin")
    assert names(tmp_path) == {"python"}


def test_shifted_output_of_fairseq_is_refused(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, no_fairseq: None
) -> None:
    """Should fairseq take a line for two in spite of all: the counts are compared."""
    honest = prepare_module.binarise

    def shifted(folder: Path, *rest: Any) -> None:
        with (folder / "valid.de").open("a") as stream:
            stream.write("one more\n")
        honest(folder, *rest)

    monkeypatch.setattr(prepare_module, "binarise", shifted)
    with refusing("valid.en-de.de.idx"):
        prepare_text(corpus, tmp_path / "bin")


def test_offsets_beyond_the_text_are_refused(tmp_path: Path) -> None:
    """As fairseq with NumPy 2 writes them from 2 GiB on; the text is a hole in a file."""
    sizes = [2**29, *np.full(3, 2**29, dtype=np.int32)]
    for lang in ("en", "de"):
        stem = tmp_path / f"train.en-de.{lang}"
        with open(f"{stem}.bin", "wb") as stream:
            stream.truncate(sum(map(int, sizes)) * 2)
        with indexed_dataset.MMapIndexedDataset.Index.writer(f"{stem}.idx", np.uint16) as index:
            index.write(sizes)
    prepare_module.check_binarised(tmp_path, "train", ("en", "de"), 4)
    path = tmp_path / "train.en-de.de.idx"
    content = path.read_bytes()
    path.write_bytes(content[:-8] + (-(2**30)).to_bytes(8, "little", signed=True))
    with refusing(path.name):
        prepare_module.check_binarised(tmp_path, "train", ("en", "de"), 4)


# --- the real thing ------------------------------------------------------------------------


@pytest.mark.slow
def test_multi30k_from_a_folder(
    shared_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text is the published one, and no check drops a pair; then a tenth, by the command."""
    whole, text, languages = shared_data / "multi30k", tmp_path / "text", multi30k.LANGUAGES
    multi30k.check_text(whole)
    (tmp_path / "kept").mkdir()
    files = find_files(whole, multi30k.SPLITS, languages)
    kept = {split: pair_in(tmp_path / "kept", split, languages) for split in files}
    reports = check_sets(files, kept, allowed=0)
    counts = {"train": 29_000, "valid": 1_014, "test": 1_000, "test1": 1_000}
    assert {split: report.kept for split, report in reports.items()} == counts
    shutil.copytree(whole, text, ignore=shutil.ignore_patterns("train.*"))
    for lang in languages:
        path, lines = text / f"train.{lang}", lines_of(whole / f"train.{lang}.gz")
        path.write_text("".join(f"{line}\n" for line in islice(lines, 2900)))
        monkeypatch.setitem(multi30k.SHA256, path.name, sha256(path))
    done = run("multi30k", "--from", text, "--out", tmp_path / "bin")
    assert done.returncode == 0, done.stderr
    sets = manifest(tmp_path / "bin")["sets"]
    assert {split: sets[split]["kept"] for split in sets} == {**counts, "train": 2_900}


def test_a_folder_of_text_that_does_not_exist(tmp_path: Path) -> None:
    """Its name is what is wrong, and not the names of its files."""
    with refusing("my-txt: folder not found"):
        find_files(tmp_path / "my-txt", None, ("en", "de"))


def test_numbers_have_the_sizes_of_fairseq() -> None:
    kinds = indexed_dataset._code_to_dtype.items()
    assert {code: np.dtype(kind).itemsize for code, kind in kinds} == binarised._ITEM_BYTES
