"""A checkpoint becomes a run: what ``--set`` says acts, or is an error; and its record."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import toy
import toy_checkpoints
from fairseq.data import Dictionary
from fairseq.data.indexed_dataset import MMapIndexedDataset
from omegaconf import OmegaConf
from refusals import refusing, wrong_usage
from run_folders import write_run

from collab_lab.cli.score import main, score_runs
from collab_lab.metrics.generate import Translations
from collab_lab.runs import score
from collab_lab.runs.from_checkpoint import configuration, value_of
from collab_lab.runs.length_limit import FAIRSEQ_LIMIT, LENGTH_LIMIT, in_training, limit_lengths
from collab_lab.runs.record import Record
from collab_lab.runs.run import Run
from collab_lab.runs.score import check_dropout, chosen_options, key_width
from collab_lab.trained.checkpoint import open_model
from fairseq_compat.safe_load import read

UNEQUAL = {"heads_in_decoder": "2,1", "head_size": 3}
ROUNDED = {"cache_bits_in_decoder": "4", "cache_bits_in_cross": "8,4"}


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stored data folder with its references."""
    folder = tmp_path_factory.mktemp("data") / "copy"
    shutil.copytree(toy_checkpoints.COPY, folder)
    words = Dictionary.load(str(folder / "dict.de.txt"))
    lines = MMapIndexedDataset(str(folder / "test.en-de.de"))
    (folder / "raw").mkdir()
    text = "".join(f"{words.string(line)}\n" for line in lines)
    (folder / "raw" / "test.de").write_text(text)
    return folder


@pytest.fixture(scope="module")
def unequal(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("unequal") / "c.pt"
    return toy_checkpoints.write(path, "transformer_headsize_n", **UNEQUAL, **ROUNDED)


def record_of(checkpoint: Path, corpus: Path, run: Path, *chosen: str) -> tuple[Record, list[str]]:
    """The record of a run that is made of a checkpoint, and its translations."""
    options = [word for one in chosen for word in ("--set", one)]
    assert main([str(checkpoint), str(corpus), "--run", str(run), "--cpu", *options]) == 0
    record = Run(run).record()
    assert record is not None
    return record, (run / "translations.txt").read_text().splitlines()


@pytest.mark.parametrize("at_limit", [0, 2, 3])
def test_more_than_a_hundredth_of_translations_at_the_limit(
    at_limit: int,
    unequal: Path,
    corpus: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of 200 translations; a sweep and `score --run` warn, and the record has the number."""
    made = Translations(["a"] * 200, ["a"] * 200, at_limit)
    monkeypatch.setattr(score, "translate", lambda *_: made)
    monkeypatch.setattr(score, "score_translations", lambda *_: ({}, made.hypotheses))
    config, run = configuration(unequal, corpus, {}, cpu=True), Run(tmp_path)
    facts = score.translation(run, config, open_model(unequal, corpus), "test")
    assert facts["at_length_limit"] == at_limit
    assert (f"{at_limit} of 200 translations" in caplog.text) == (at_limit > 2)


@pytest.mark.slow
def test_the_record_says_how_it_was_made(
    unequal: Path, corpus: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = ["generation.beam=2", "generation.lenpen=0.6", "common_eval.post_process=letter"]
    record, text = record_of(unequal, corpus, tmp_path / "run", *chosen, "method=mine")
    search = {"beam": 2, "lenpen": 0.6}
    assert (record.beam, record.lenpen, record.generation) == (2, 0.6, {**search, **LENGTH_LIMIT})
    assert not any(" " in line for line in text), "letters are joined"
    assert (record.heads, record.key_dim) == (None, None), "attentions differ"
    assert record.heads_by_type == {"encoder": [4, 4], "decoder": [2, 1], "cross": [4, 4]}
    assert (record.averaged, record.checkpoint_rule) == ([unequal.name], "given")
    assert record.at_length_limit
    assert f"{record.at_length_limit} of {record.sentences} translations" in caplog.text
    assert record.translate_seconds
    assert (record.translate_threads, record.translate_jobs) == (1, 1)
    assert record.translate_hardware == record.hardware
    assert (record.train_seconds, record.train_threads, record.train_jobs) == (None, None, None)
    cached = record.key_bytes_per_target_token + record.value_bytes_per_target_token
    cached += record.key_bytes_per_source_token + record.value_bytes_per_source_token
    assert record.cache_share == cached / (2 * 2 * 16 * 4)  # of 16-bit numbers, four attentions


@pytest.mark.slow
def test_data_folders_are_those_of_the_command(
    unequal: Path, corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run is also scored from another folder."""
    monkeypatch.chdir(corpus.parent)
    record_of(unequal, Path("copy:copy"), tmp_path / "run")
    assert Run(tmp_path / "run").config().task.data == f"{corpus}:{corpus}"


def test_an_option_of_the_model_acts(unequal: Path, corpus: Path, tmp_path: Path) -> None:
    """A model without its rounding is that which was never rounded."""
    plain = toy_checkpoints.write(tmp_path / "c.pt", "transformer_headsize_n", **UNEQUAL)
    records, texts = zip(
        record_of(unequal, corpus, tmp_path / "rounded"),
        record_of(unequal, corpus, tmp_path / "without", "model.cache_bits=0"),
        record_of(plain, corpus, tmp_path / "plain"),
        strict=True,
    )
    assert texts[1] == texts[2]
    shares = [record.cache_share for record in records]
    assert shares[0] < shares[1] == shares[2]
    assert records[0].valid_loss != records[1].valid_loss == records[2].valid_loss
    assert records[1].overrides == {"model.cache_bits": "0"}
    # Scored again, it is the same model.
    (tmp_path / "without" / "score.json").unlink()
    assert record_of(unequal, corpus, tmp_path / "without", "model.cache_bits=0")[1] == texts[1]


def test_a_fact_has_a_value(unequal: Path, corpus: Path, capsys: Any, tmp_path: Path) -> None:
    with wrong_usage(capsys, "is not NAME=VALUE"):
        main([str(unequal), str(corpus), "--run", str(tmp_path / "run"), "--set", "method="])


def test_a_length_that_is_not_read(unequal: Path, corpus: Path) -> None:
    chosen = {"generation.match_source_len": "true", "generation.max_len_b": "3"}
    with refusing("generation.max_len_b", "no effect"):
        configuration(unequal, corpus, chosen, cpu=True)


@pytest.mark.parametrize(
    "option",
    [
        # Options that nothing reads when a checkpoint is scored.
        "model.dropout=0.1", "model.encoder_layers=3", "criterion.label_smoothing=0.1",
        "dataset.valid_subset=test", "optimization.max_epoch=1", "task.data=D",
        "task.eval_bleu=true", "dataset.max_tokens=99", "generation.nbest=2",
        "checkpoint.keep_last_epochs=2", "generation.score_reference=true",
        # Options that the model does not have.
        "model.key_dim=8", "generation.beams=3", "models.beam=3",
        # Facts with the name of an option, or of a section.
        "beam=1", "lenpen=1", "seed=2", "cache_bits=4", "key_dim=8", "head_size=8", "generation=x",
        "scoring=wer", "tokenizer=moses", "bpe=none",
        # Facts with the name of what is measured.
        "bleu=99", "commit=abc", "heads_by_type=x", "cache_share=1",
        # Values that change nothing, or cannot be.
        "generation.max_len_a=-1", "generation.max_len_b=-5",
        # Values that are none.
        "common.seed=true", "generation.beam=many", "generation.beam=1.5", "generation.beam=null",
        "generation.sampling=2", "dataset.max_tokens_valid=many", "generation.lenpen=false",
    ],
)  # fmt: skip
def test_what_is_set_and_does_not_act(
    option: str, unequal: Path, corpus: Path, tmp_path: Path
) -> None:
    with refusing(option.partition("=")[0]):
        main([
            str(unequal), str(corpus), "--run", str(tmp_path / "run"), "--cpu", "--set", option
        ])  # fmt: skip
    assert not (tmp_path / "run").exists()


def test_options_that_contradict_each_other_leave_no_folder(
    unequal: Path, corpus: Path, tmp_path: Path
) -> None:
    bits = ("model.cache_bits=8", "model.cache_bits_in_decoder=4", "model.cache_bits_in_cross=4")
    with refusing("cache"):
        options = [word for one in bits for word in ("--set", one)]
        main([str(unequal), str(corpus), "--run", str(tmp_path / "run"), "--cpu", *options])
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("names", [["Nope"], "Nope", ["TransformerEncoder", "Nope"]])
def test_a_dropout_that_no_module_has(names: Any, unequal: Path, corpus: Path) -> None:
    model = open_model(unequal, corpus).model
    with refusing("retain_dropout_modules"):
        check_dropout(model, {"retain_dropout_modules": names})
    check_dropout(model, {"retain_dropout_modules": ["TransformerEncoder"]})
    check_dropout(model, {})


def test_a_list_of_modules_is_kept() -> None:
    """In the record, which is JSON."""
    given = OmegaConf.create({"retain_dropout_modules": ["TransformerEncoder"], "beam": 5})
    found = json.loads(json.dumps(chosen_options(given)))
    assert found == {"retain_dropout_modules": ["TransformerEncoder"]}


def test_half_precision_is_not_for_the_cpu(
    unequal: Path, corpus: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where there is a GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    with refusing("common.fp16", "GPU"):
        configuration(unequal, corpus, {"common.fp16": "true"}, cpu=True)


def test_a_name_that_is_set_twice(
    unequal: Path, corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--set", "generation.beam=1", "--set", "method=mine", "--set", "generation.beam=2"]
    with pytest.raises(SystemExit):
        main([str(unequal), str(corpus), "--run", str(tmp_path / "run"), "--cpu", *options])
    assert "generation.beam" in capsys.readouterr().err


def test_an_option_that_is_newer_than_the_checkpoint(
    unequal: Path, corpus: Path, tmp_path: Path
) -> None:
    state = read(unequal)
    del state["cfg"]["model"]["cache_bits_in_cross"]
    torch.save(state, tmp_path / "c.pt")
    chosen = {"model.cache_bits_in_cross": "8,8"}
    config = configuration(tmp_path / "c.pt", corpus, chosen, cpu=True)
    assert config.model.cache_bits_in_cross == "8,8"
    with refusing("cache_bits_across"):
        configuration(tmp_path / "c.pt", corpus, {"model.cache_bits_across": "8"}, cpu=True)


def test_the_other_direction_has_a_warning(
    unequal: Path, corpus: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source, target, warns in (("en", "de", False), ("de", "en", True)):
        chosen = {"task.source_lang": source, "task.target_lang": target}
        configuration(unequal, corpus, chosen, cpu=True)
        assert ("de to en" in capsys.readouterr().err) == warns


def test_values_of_options(unequal: Path, corpus: Path) -> None:
    chosen = {
        "common.seed": "3", "generation.lenpen": "1", "generation.sampling": "true",
        "task.source_lang": "en", "common_eval.post_process": "null", "share": "half",
        "dataset.max_tokens_valid": "300", "model.cache_bits": "4",
    }  # fmt: skip
    config = configuration(unequal, corpus, chosen, cpu=True)
    assert (config.common.seed, config.generation.lenpen, config.generation.sampling) == (
        3,
        1,
        True,
    )
    assert (config.dataset.max_tokens_valid, config.common_eval.post_process) == (300, None)
    assert config.model.cache_bits == "4"
    assert config.model.cache_bits_in_cross is config.model.cache_bits_in_decoder is None


@pytest.mark.parametrize(
    ("chosen", "a", "b"),
    [
        ({}, *LENGTH_LIMIT.values()),
        ({"generation.max_len_b": "200"}, 0, 200),  # fairseq's own, asked for
        ({"generation.max_len_b": "9"}, 0, 9),
        ({"generation.max_len_a": "1.5"}, 1.5, 200),
    ],
)
def test_the_limit_of_a_length(
    chosen: dict[str, str], a: float, b: int, unequal: Path, corpus: Path
) -> None:
    generation = configuration(unequal, corpus, chosen, cpu=True).generation
    assert (generation.max_len_a, generation.max_len_b) == (a, b)


def test_a_checkpoint_of_a_sweep_keeps_fairseqs_limit() -> None:
    """It is for the sweep's own search; the hub reads it in the checkpoint."""
    config = OmegaConf.create({"generation": {"beam": 5, "max_len_a": -1, "max_len_b": -1}})
    limit_lengths(config)
    assert config.generation == {"beam": 5, **LENGTH_LIMIT}
    assert in_training(config) == [f"generation.{k}={v}" for k, v in FAIRSEQ_LIMIT.items()]
    config.generation.max_len_b = 7
    assert in_training(config) == in_training(OmegaConf.create({})) == []


@pytest.mark.parametrize(
    ("arch", "options", "width"),
    [
        ("transformer", {}, 16),
        ("transformer_collab", {"key_dim": 6}, 6),
        ("transformer_headsize_n", {"key_dim": 8}, 8),
        ("transformer_grouped_query", {"key_value_heads": 1}, 4),  # queries are 16 wide
        ("transformer_latent", {"latent_dim": 6}, None),  # nor a key
    ],
)
def test_key_width_is_what_is_cached(arch: str, options: dict, width: int | None) -> None:
    layers = toy.model(arch, **options).decoder.layers
    assert {key_width(layer.self_attn) for layer in layers} == {width}


def test_values_that_are_no_yaml() -> None:
    """fairseq's own name of subword_nmt ends in a blank and starts with a mark."""
    saved = OmegaConf.create({"common_eval": {"post_process": None}, "generation": {"beam": 5}})
    assert value_of("common_eval.post_process", "@@ ", saved) == "@@ "
    with refusing("generation.beam", "type int"):
        value_of("generation.beam", "[", saved)


def test_a_run_that_cannot_be_read_leaves_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = Run(write_run(tmp_path, "collab", 64))
    bad = Run(write_run(tmp_path, "collab", 32))
    bad.score_file.unlink()
    bad.score_file.mkdir()
    assert score_runs([bad, good]) == 1
    told = capsys.readouterr()
    assert good.name in told.out
    assert f"{bad.folder}: " in told.err


def test_a_reader_that_has_gone_is_no_fault_of_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout", Mock(write=Mock(side_effect=BrokenPipeError)))
    with pytest.raises(BrokenPipeError):
        score_runs([Run(write_run(tmp_path, "collab", 64))])


def test_languages_are_those_of_the_first_folder(tmp_path: Path) -> None:
    """Of a checkpoint that names none."""
    state = torch.load(toy_checkpoints.write(tmp_path / "c.pt"), weights_only=False)
    state["cfg"]["task"] |= {"source_lang": None, "target_lang": None}
    torch.save(state, tmp_path / "none.pt")
    data = Path(f"{toy_checkpoints.COPY}:{toy_checkpoints.COPY}")
    config = configuration(tmp_path / "none.pt", data, {}, cpu=True)
    assert (config.task.source_lang, config.task.target_lang) == ("en", "de")
