"""What a training's options say of its loss and its text counts wherever its model is measured."""

from __future__ import annotations

import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy_checkpoints
from fairseq.tasks.language_modeling import LanguageModelingTask
from omegaconf import OmegaConf
from refusals import refusing
from toy_checkpoints import COPY

from collab_lab import open_model, prices, shrink, translate, validation_loss
from collab_lab.cli.main import main
from collab_lab.metrics import loss
from collab_lab.metrics.loss import cross_entropy, predicted
from collab_lab.runs.checks import check_data
from collab_lab.runs.run import Run
from collab_lab.runs.scheduler import summary
from collab_lab.runs.training import losses, validate
from collab_lab.statistics.moments import collect_all
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import dataset_of, original, samples, sentences_of

PREFIX = 2


def without_prefix(number: int = PREFIX) -> dict[str, Any]:
    """Options of a criterion that leaves out the first targets of each sentence."""
    return {
        "_name": "label_smoothed_cross_entropy",
        "label_smoothing": 0.0,
        "ignore_prefix_size": number,
        "report_accuracy": False,
        "sentence_avg": False,
    }


def trained_without_prefix(folder: Path, number: int = PREFIX) -> Trained:
    """A model whose criterion left out the first targets of each sentence."""
    state = torch.load(toy_checkpoints.write(folder / "whole.pt"), weights_only=False)
    state["cfg"]["criterion"] = without_prefix(number)
    torch.save(state, folder / "prefix.pt")
    return open_model(folder / "prefix.pt", COPY)


# ---- what a criterion leaves out -----------------------------------------------------------------


def test_targets_that_the_criterion_leaves_out(tmp_path: Path) -> None:
    """The loss is the sum of fairseq's criterion, per target that counts; a record has it, too."""
    model = trained_without_prefix(tmp_path)
    criterion = model.task.build_criterion(model.cfg.criterion).eval()
    nats, counted = 0.0, 0
    for batch in samples(model, "valid"):
        nats += float(criterion(model.model, batch)[2]["nll_loss"])
        counted += batch["ntokens"] - PREFIX * len(batch["target"])
        assert not cross_entropy(model.model, batch)[:, :PREFIX].any()
        assert not predicted(model.model.decoder, batch)[:, :PREFIX].any()
    found = validation_loss(model)
    assert found == pytest.approx(nats / counted / math.log(2), rel=1e-5)
    whole = open_model(tmp_path / "whole.pt", COPY)
    assert found != pytest.approx(validation_loss(whole), rel=1e-3)
    record = losses(model, Run(tmp_path))
    assert record["valid_nats"] == pytest.approx(nats / counted, rel=1e-4)
    assert record["valid_loss"] == pytest.approx(nats / counted / math.log(2), rel=1e-4)


def test_a_loss_is_per_token_whatever_a_training_divides_by(tmp_path: Path) -> None:
    """``--sentence-avg`` divides the loss, but not the likelihood, by the number of sentences."""
    state = torch.load(toy_checkpoints.write(tmp_path / "whole.pt"), weights_only=False)
    state["cfg"]["criterion"] = without_prefix(0) | {"sentence_avg": True}
    torch.save(state, tmp_path / "by_sentence.pt")
    model = open_model(tmp_path / "by_sentence.pt", COPY)
    found = validate(model)
    assert found["valid_loss"] == pytest.approx(found["valid_nll_loss"], rel=1e-5)
    assert found["valid_loss"] == pytest.approx(validation_loss(model), rel=1e-5)


def test_statistics_without_these_targets(tmp_path: Path) -> None:
    """Neither the labels that are drawn nor the number of tokens has them."""
    model = trained_without_prefix(tmp_path)
    batches = sentences_of(model, "train", 20)
    found = collect_all(model, batches)
    pad = model.task.target_dictionary.pad()
    for batch in batches:
        batch["target"][:, :PREFIX] = pad
        batch.pop("ignored_prefix")
    expected = collect_all(model, batches)
    assert found.bits == expected.bits
    for attention, of_it in found.attentions.items():
        assert torch.equal(of_it.output_fisher, expected.attentions[attention].output_fisher)
    small = shrink(model, heads=0.9, sentences=20).model
    assert small.ignored_prefix == PREFIX
    small.save(tmp_path / "small.pt")
    assert open_model(tmp_path / "small.pt", COPY).ignored_prefix == PREFIX


def test_what_is_not_measured_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a plug-in's criterion may leave out, and further validation sets."""
    validation_loss(trained_without_prefix(tmp_path, 0))
    assert not capsys.readouterr().err
    model = trained_without_prefix(tmp_path, 0)
    own = type("Own", (), {"__module__": "plug_in.criterion"})
    monkeypatch.setitem(loss.CRITERION_REGISTRY, "own", own)
    model.cfg.criterion = {"_name": "own"}
    model.cfg.dataset.valid_subset = "valid,valid1"
    kind = type(model.task)

    def train_step(self: Any, *args: Any) -> Any:
        return kind.train_step(self, *args)

    model.task.__class__ = type("Experts", (kind,), {"train_step": train_step})
    shrink(model, lose=9.0, sentences=9)
    errors = capsys.readouterr().err
    assert "Experts, has steps of its own" in errors
    assert "criterion own may leave out" in errors
    assert "valid1 of the training is left out" in errors


def test_sentences_of_nothing_but_a_prefix(tmp_path: Path) -> None:
    model = trained_without_prefix(tmp_path, 100)
    for measure in (validation_loss, prices, validate):
        with refusing("--ignore-prefix-size"):
            measure(model)


@pytest.mark.parametrize("number", [0, PREFIX])
def test_a_beginning_that_was_not_learnt_is_said(
    number: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a model translates or is exported: it makes up the tag of a language, for example."""
    model = trained_without_prefix(tmp_path, number)
    data = toy_checkpoints.words_as_text(tmp_path / "data")
    toy_checkpoints.with_raw_text(data, model.path)
    (data / "manifest.json").unlink()
    options = [str(model.path), str(data)]
    translates = ["--set=dataset.gen_subset=valid", "--cpu", f"--run={tmp_path / 'run'}"]
    commands: list[list[str]] = [
        ["score", *options, *translates],
        ["export", *options, "--format=fairseq", f"--out={tmp_path / 'out'}"],
    ]
    for command in commands:
        assert main(command) == 0
        assert capsys.readouterr().err.count("--ignore-prefix-size 2") == bool(number)
    record = Run(tmp_path / "run").record()
    assert record is not None
    assert ("first 2 tokens" in summary(record)) == bool(number)  # what a sweep prints
    assert main(["export", *options, "--format=ct2", f"--out={tmp_path / 'ct2'}"]) == 0
    said = capsys.readouterr()
    assert ("if target_prefix gives it" in said.out) == bool(number)  # its scores
    (data / "manifest.json").write_text(json.dumps({"form": {"moses": False}}))
    opened = open_model(model.path, data)
    translate(opened, [opened.task.source_dictionary[10]])
    assert capsys.readouterr().err.count("--ignore-prefix-size 2") == bool(number)


def test_a_language_model_that_has_not_learnt_the_first_words(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Perplexities, by fairseq's function, count them."""
    state = toy_checkpoints.made("transformer_lm_collab", key_dim=6)
    state["cfg"]["criterion"] = without_prefix()
    torch.save(state, path := tmp_path / "lm.pt")
    data = toy_checkpoints.blocks(tmp_path / "data")
    assert main(["score", str(path), str(data), "--cpu", f"--run={tmp_path / 'run'}"]) == 0
    assert "--ignore-prefix-size 2" in capsys.readouterr().err
    record = Run(tmp_path / "run").record()
    assert record is not None
    assert "first 2 tokens" in summary(record)


def test_a_language_that_the_task_gives_is_not_made_up(tmp_path: Path) -> None:
    """As fairseq's multilingual task does with ``--decoder-langtok``."""
    for tag, replacing, expected in (("tgt", False, 1), (None, False, 2), ("tgt", True, 2)):
        options = SimpleNamespace(
            langtoks={"main": ("src", tag)}, lang_tok_replacing_bos_eos=replacing
        )
        model = replace(trained_without_prefix(tmp_path), task=SimpleNamespace(args=options))
        assert model.made_up == expected


# ---- the text of a training ----------------------------------------------------------------------


def with_second_part(folder: Path) -> Path:
    """A data folder whose test set is a second part of its training set."""
    shutil.copytree(COPY, folder)
    for path in folder.glob("test.*"):
        shutil.copy(path, path.with_name(path.name.replace("test.", "train1.")))
    return folder


def targets(model: Trained, subset: str = "train") -> list[Any]:
    """The targets of a subset, sorted."""
    dataset = dataset_of(model, subset)
    return sorted(dataset[i]["target"].tolist() for i in range(len(dataset)))


def test_the_training_set_is_all_that_was_trained(tmp_path: Path) -> None:
    """``train1`` next to ``train``, and further folders; a validation set is that of the first."""
    path, copy = toy_checkpoints.write(tmp_path / "c.pt"), COPY
    alone = open_model(path, copy)
    first, second = targets(alone), targets(alone, "test")
    parts = open_model(path, with_second_part(tmp_path / "parts"))
    assert targets(parts) == sorted(first + second)
    often = open_model(path, tmp_path / "parts", upsample_primary=3)
    assert targets(often) == sorted(3 * first + second)
    shard = tmp_path / "shard"
    shutil.copytree(copy, shard)
    for test in copy.glob("test.*"):
        shutil.copy(test, shard / test.name.replace("test.", "train."))
    shards = open_model(path, f"{copy}:{shard}")
    assert targets(shards) == sorted(first + second)
    assert targets(shards, "valid") == targets(alone, "valid")
    # Sentences are spread over all of it, and losses and prices come from them.
    read = samples(shards, "train")
    assert sum(len(batch["target"]) for batch in read) == len(first + second)
    assert prices(shards, sentences=10).sentences == 10


def test_folders_whose_numbers_mean_other_words(tmp_path: Path) -> None:
    """fairseq reads them by the words of the first; how often words occur does not matter."""
    path, copy = toy_checkpoints.write(tmp_path / "c.pt"), COPY
    shard = shutil.copytree(copy, tmp_path / "shard")
    dictionary = shard / "dict.en.txt"
    words = [line.split()[0] for line in dictionary.read_text().splitlines()]
    for order in (words, [*words[1:], words[0]]):
        dictionary.write_text("".join(f"{word} 1\n" for word in order))
        model = open_model(path, f"{copy}:{shard}")
        if order == words:
            dataset_of(model, "train")
    with refusing(str(dictionary), str(copy / "dict.en.txt")):
        prices(model, sentences=9)
    config = OmegaConf.create(
        {
            "task": {"data": f"{copy}:{shard}", "source_lang": "en", "target_lang": "de"},
            "dataset": {"train_subset": "train", "valid_subset": "valid"},
        }
    )
    with refusing(str(dictionary)):
        check_data(config)


#: What happens to the files of a part or of the whole, and the file that is named.
BROKEN = {
    "one side": ("train1.en-de.de.*", None, "train1.en-de.de.idx"),
    "no index": ("train1*.idx", None, "train1.en-de.en.idx"),
    "no index of one side": ("train.en-de.en.idx", None, "train.en-de.en.idx"),
    "no text": ("train1.en-de.de.bin", None, "train1.en-de.de.bin"),
    "an index that is cut off": ("train1.en-de.de.idx", 60, "train1.en-de.de.idx"),
    "an index of nothing": ("train1.en-de.de.idx", 0, "train1.en-de.de.idx"),
    "a text that is cut off": ("train1.en-de.de.bin", 60, "train1.en-de.de.idx"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_part_that_is_not_whole(name: str, tmp_path: Path) -> None:
    """fairseq fails at it, or trains without it."""
    pattern, size, named = BROKEN[name]
    data = with_second_part(tmp_path / "data")
    for path in data.glob(pattern):
        path.unlink() if size is None else path.write_bytes(path.read_bytes()[:size])
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), data)
    for measure in (lambda: prices(model, sentences=9), lambda: shrink(model, heads=0.5)):
        with refusing(named):
            measure()
    assert validation_loss(model) > 0  # another set


def test_copies_of_a_sentence_are_not_read_twice(tmp_path: Path) -> None:
    """Of an upsampled first part, every fourth sentence: each once, whatever the distance."""
    path = toy_checkpoints.write(tmp_path / "c.pt")
    model = open_model(path, with_second_part(tmp_path / "data"), upsample_primary=4)
    dataset = dataset_of(model, "train")
    places = [original(dataset, i) for i in range(len(dataset))]
    assert len({*places}) < len(places) - 10
    found = [int(i) for batch in samples(model, "train", len(places) // 4) for i in batch["id"]]
    assert len({original(dataset, i) for i in found}) == len(found) == len(places) // 4


def test_sides_of_unequal_numbers(tmp_path: Path) -> None:
    data = with_second_part(tmp_path / "data")
    for kind in ("bin", "idx"):
        shutil.copy(data / f"train.en-de.de.{kind}", data / f"train1.en-de.de.{kind}")
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), data)
    with refusing("train1.en-de", "translations"):
        prices(model, sentences=9)


def test_a_source_alone_is_translated_but_has_no_loss(tmp_path: Path) -> None:
    data = shutil.copytree(COPY, tmp_path / "data")
    for path in data.glob("valid.en-de.de.*"):
        path.unlink()
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), data)
    assert dataset_of(model, "valid").tgt is None
    with refusing("target side"):
        validation_loss(model)


def test_a_part_of_a_language_models_text_without_its_index(tmp_path: Path) -> None:
    data = shutil.copytree(COPY, tmp_path / "data")
    for name in ("train.idx", "train.bin", "train1.bin"):
        shutil.copy(data / f"train.en-de.de.{name[-3:]}", data / name)
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt", "transformer_lm"), data)
    with refusing("train1.idx"):
        dataset_of(model, "train")


def test_folders_of_another_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its rule for several folders is not known: lines and files say which one is read."""
    path, copy = toy_checkpoints.write(tmp_path / "c.pt"), shutil.copytree(COPY, tmp_path / "d")
    monkeypatch.setattr("collab_lab.trained.sentences.TranslationTask", LanguageModelingTask)
    words = [str(path), f"{copy}:{COPY}", "--sentences=9", "--cpu"]
    assert main(["prices", *words, f"--out={tmp_path / 'prices'}"]) == 0
    said = capsys.readouterr()
    assert f"only the part in {copy} is read" in said.err
    (warning,) = json.loads((tmp_path / "prices" / "prices.json").read_text())["warnings"]
    assert warning in said.out
    assert str(copy) in warning
    main(["shrink", *words, "--heads=0.5", f"--out={tmp_path / 's.pt'}"])
    (line,) = [x for x in capsys.readouterr().out.splitlines() if x.startswith("to fine-tune")]
    assert f"passes over the part in {copy}" in line


def test_another_set_than_the_trainings_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A training on `clean`, in a folder that also has `train`."""
    path = toy_checkpoints.write(tmp_path / "c.pt")
    for subset, said in (("train", 0), ("clean", 1)):
        model = open_model(path, COPY)
        model.cfg.dataset.train_subset = subset
        prices(model, sentences=10)
        assert capsys.readouterr().err.count("trained on 'clean'") == said


def test_parts_of_a_language_models_text(tmp_path: Path) -> None:
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_lm")
    data = tmp_path / "data"
    shutil.copytree(COPY, data)
    for kind in ("bin", "idx"):
        for name in ("train", "train1"):
            shutil.copy(data / f"train.en-de.de.{kind}", data / f"{name}.{kind}")
    whole = open_model(path, data)
    both = sum(map(int, dataset_of(whole, "train").sizes))
    assert both == 2 * sum(map(int, dataset_of(whole, "train1").sizes))
    shards = open_model(path, f"{data}:{data}")
    assert sum(map(int, dataset_of(shards, "train").sizes)) == 2 * both


def test_a_number_below_0_leaves_out_no_target(tmp_path: Path) -> None:
    """As in fairseq's criterion."""
    assert trained_without_prefix(tmp_path, -1).ignored_prefix == 0


def test_sentences_that_are_too_long_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The loss is of the others only."""
    path = toy_checkpoints.write(tmp_path / "c.pt", max_target_positions=6)
    validation_loss(open_model(path, COPY))
    assert "sentences of valid are longer than the model's positions" in capsys.readouterr().err
