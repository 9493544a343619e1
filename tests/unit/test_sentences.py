"""Sentences in, translations out: as the binarised set, in the order given."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import toy_checkpoints
from commands import REPOSITORY
from fairseq.data import Dictionary
from omegaconf import OmegaConf
from refusals import refusing
from toy_language_models import language_model

from collab_common.encodings import are_of_other_tokens
from collab_lab import open_model, translate
from collab_lab.cli.heads import say_if_untokenised
from collab_lab.export.vocabulary import cut_tags
from collab_lab.heads import stages
from collab_lab.heads.trees import Tree
from collab_lab.metrics import translate_text
from collab_lab.metrics.generate import BEAM, longest, words_of
from collab_lab.metrics.generate import translate as of_batches
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.sentences import samples


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    """A model and a data folder of tokens with BPE codes that keep its words whole.

    It has not learnt to end: its positions do it.
    """
    folder = tmp_path_factory.mktemp("sentences")
    data = toy_checkpoints.words_as_text(folder / "data")
    return open_model(toy_checkpoints.write(folder / "c.pt", max_target_positions=16), data)


def test_text_is_translated_as_the_set_is(model: Trained) -> None:
    task, batches = model.task, samples(model, "valid", 9)
    expected = of_batches(model.model, task, batches, {"beam": BEAM}, "subword_nmt").hypotheses
    sources = {
        index: task.source_dictionary.string(tokens)
        for batch in batches
        for index, tokens in zip(
            batch["id"].tolist(), batch["net_input"]["src_tokens"], strict=True
        )
    }
    given = [sources[index].replace("<pad>", "").strip() for index in sorted(sources)]
    assert translate(model, given) == expected
    assert translate(model, given[::-1]) == expected[::-1]
    assert translate(model, []) == []
    assert translate(model, (f"{line}\n" for line in given)) == expected  # as of an open file


def test_the_limit_of_a_translation_is_that_of_its_sentence(
    model: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    """fairseq limits all translations of a batch by its longest source."""
    lengths, search = list[list[int]](), translate_text.translated

    def seen(trained: Any, task: Any, batches: Any, *more: Any) -> Any:
        every = [*batches]
        lengths.extend(batch["net_input"]["src_lengths"].tolist() for batch in every)
        return search(trained, task, every, *more)

    monkeypatch.setattr(translate_text, "translated", seen)
    given = ["a b c d", "a", "b c", "b"]
    found = translate(model, given)
    assert sorted(len(batch) for batch in lengths) == [1, 1, 2]
    assert all(len(set(batch)) == 1 for batch in lengths)
    assert found == [translate(model, [line])[0] for line in given]


def test_breaks_of_documents_are_not_split(model: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    """By BPE codes also, which have not learnt them, whatever is around them; other words are."""
    words, given = model.task.source_dictionary, list[Any]()
    build = model.task.build_dataset_for_inference

    def see(lines: list[Any], lengths: Any) -> Any:
        given.extend(words.string(line) for line in lines)
        return build(lines, lengths)

    monkeypatch.setattr(model.task, "build_dataset_for_inference", see)
    # As if the model had been trained on documents: its first word was their break.
    word = words.symbols[words.nspecial]
    monkeypatch.setitem(words.indices, "<break>", words.index(word))
    translate(model, ["w1 <break> w2", "w1<break>w2", " w1 <break>  w2 "])
    assert given == [f"w1 {word} w2"] * 3


def test_tags_that_the_codes_cut_are_said(
    model: Trained, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """They stood before the subwords of each source, so that no segmented text has them."""
    words = model.task.source_dictionary
    assert cut_tags(model, reads_codes=True) is None
    monkeypatch.setattr(words, "symbols", [*words.symbols[:-1], "<2de>"])
    assert cut_tags(model) is None  # such an export leaves the codes alone
    found = cut_tags(model, reads_codes=True)
    assert found is not None
    translate(model, [words.symbols[10]], beam=1)
    assert f"warning: {found}" in capsys.readouterr().err
    monkeypatch.setitem(model.cfg.task, "_name", "another")  # which may put them there itself
    assert cut_tags(model, reads_codes=True) is None


@pytest.mark.slow
def test_the_notebook_runs(model: Trained, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its cells, with another model, fewer sentences and words of that model."""
    monkeypatch.chdir(tmp_path)
    notebook = json.loads((REPOSITORY / "examples" / "shrink.ipynb").read_text())
    cells = ["".join(c["source"]) for c in notebook["cells"] if c["cell_type"] == "code"]
    code = "\n".join(cells)
    word = model.task.source_dictionary[10]
    for given, other in {
        '"model.pt"': repr(str(model.path)),
        '"my-data"': repr(str(model.cfg.task.data)),
        "sentences=1000": "sentences=20",
        "cache=0.125, parameters=0.8": "cache=0.5, parameters=0.9",  # it is tiny
        '"A man plays the guitar."': repr(word),
        '"Two dogs run on the beach."': repr(f"{word} {word}"),
    }.items():
        assert given in code
        code = code.replace(given, other)
    seen: dict[str, Any] = {}
    exec(code, seen)
    assert seen["small"].shares["cache"] <= 0.5
    assert len(seen["after"]) == 2
    assert Path("small.pt").is_file()
    assert Path("ct2-model/model.bin").is_file()


def test_a_symbol_of_fairseqs_is_an_unknown_word(model: Trained) -> None:
    word = model.task.source_dictionary[10]
    assert translate(model, [f"{word} </s> {word}"]) == translate(model, [f"{word} <unk> {word}"])


def test_an_unknown_word_of_a_reference_matches_none(model: Trained) -> None:
    batch = samples(model, "valid", 1)[0]
    batch["target"][0, 0] = model.task.target_dictionary.unk()
    found = of_batches(model.model, model.task, [batch], {"beam": 1}, "subword_nmt")
    assert found.targets[0].split()[0] == "<<unk>>"


def test_what_cannot_be_translated(model: Trained, tmp_path: Path) -> None:
    word = model.task.source_dictionary[10]
    with refusing("sentences[1]", " 0 "):
        translate(model, [word, " "])
    with refusing("sentences[0]"):
        translate(model, [f"{word} " * 5000])
    with refusing("`sentences`"):
        translate(model, word)
    with refusing("sentences[1]", "lines"):
        translate(model, [word, f"{word}\n{word}"])
    with refusing("`beam`"):
        translate(model, [word], beam=0)
    with refusing("c.pt", "language model"):
        translate(replace(model, model=language_model("transformer_lm")), [word])
    without = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY)
    with refusing(str(toy_checkpoints.COPY), "fairseq-interactive"):
        translate(without, [word])
    data = toy_checkpoints.words_as_text(tmp_path / "data")
    (data / "manifest.json").write_text('{"form": {"moses": true}}')  # not of ordinary text
    with refusing(str(data), "fairseq-interactive"):
        translate(open_model(tmp_path / "c.pt", data), [word])


def test_as_many_subwords_as_there_are_positions_for(tmp_path: Path) -> None:
    """But one, that of the end; more sentences than a batch has keep their order."""
    data = toy_checkpoints.words_as_text(tmp_path / "data")
    options = {"max_source_positions": 8, "max_target_positions": 16}
    short = open_model(toy_checkpoints.write(tmp_path / "c.pt", **options), data)
    words = [short.task.source_dictionary[index] for index in range(10, 16)]
    assert len(translate(short, [" ".join(words[:1] * 7)], beam=1)) == 1
    with refusing("8 subwords", "1 to 7"):
        translate(short, [" ".join(words[:1] * 8)])
    many = [f"{a} {b} {c}" for a in words for b in words for c in words[:2]]
    found = translate(short, many, beam=1)
    assert len(found) == 72 > 64
    assert found[63:67] == [translate(short, [line], beam=1)[0] for line in many[63:67]]


def test_limits_and_words_of_lines() -> None:
    sample = {"net_input": {"src_tokens": torch.ones(2, 9), "src_lengths": torch.tensor([4, 7])}}
    as_long: Any = SimpleNamespace(match_source_len=True)
    assert longest(as_long, sample) == 7
    symbols = Dictionary()
    index = symbols.add_symbol("dog")
    line = torch.tensor([symbols.pad(), index, symbols.unk(), symbols.eos()])
    assert words_of(symbols, line) == ["dog", "<unk>"]


def test_ordinary_text_for_a_model_of_tokens_is_said(
    model: Trained, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    translate(model, ["w1 w2 .", "w3 w4. w5 ."], beam=1)
    assert "tokens" not in capsys.readouterr().err
    translate(model, ["w1 w2.", "w3 ."], beam=1)  # no more than half
    assert "tokens" not in capsys.readouterr().err
    translate(model, ["w1 w2.", "w3", "w4?"], beam=1)
    assert "trained on tokens" in capsys.readouterr().err
    monkeypatch.setattr(translate_text, "_subwords", lambda _: (str.split, "sentencepiece"))
    translate(model, ["w1 w2.", "w3", "w4?"], beam=1)
    assert "tokens" not in capsys.readouterr().err


def test_subwords_that_the_dictionary_lacks_are_said(
    model: Trained, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of another script or case than the training text, say."""
    for lines, number in (
        (["w1 w2", "w3"], 0),
        (["w1 Ж", "w3", "</s> w1"], 2),  # symbols of fairseq's are no text
    ):
        translate(model, lines, beam=1)
        said = f"{number} of {len(lines)} sentences have subwords that the dictionary lacks"
        assert (said in capsys.readouterr().err) == bool(number)
        trees = [Tree(line.split(), [*range(len(line.split()))], []) for line in lines]
        stages.syntax(model, trees, "trees")
        assert (said in capsys.readouterr().err) == bool(number)
    with refusing("has no sentence", "another file than empty.conllu"):
        stages.syntax(model, [], "empty.conllu")


def test_gold_trees_of_ordinary_text_are_said_of_a_model_of_tokens(
    model: Trained, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for form, lines, is_said in (
        ({"moses": False}, ["w1 w2.", "w3", "w4?"], True),
        ({"moses": False}, ["w1 w2 .", "w3", "w4 ?"], False),
        ({"moses": True}, ["w1 w2.", "w3", "w4?"], False),  # Moses' tokens are made of the text
        (None, ["w1 w2.", "w3", "w4?"], False),
    ):
        (tmp_path / "manifest.json").write_text(json.dumps({"form": form}))
        say_if_untokenised(model, tmp_path, lines)
        assert ("SpaceAfter=No" in capsys.readouterr().err) == is_said


def test_a_vocabulary_of_ordinary_text_is_known_by_its_words() -> None:
    """Codes that were learnt of ordinary text have merges with marks in them."""
    lines = ["a dog.", "two dogs!"]
    assert are_of_other_tokens(lines, ["a", "dog", ".", "Mr.", *map(str, range(99))])
    assert not are_of_other_tokens(lines, ["a", "dog.", "dogs!", "on.", *map(str, range(99))])


@pytest.mark.parametrize(
    "line",
    ["\u092f\u0939 \u0939\u0948\u0964", "\u06cc\u06c1 \u06c1\u06d2\u06d4", "\u1290\u12cd\u1362"],
)
def test_ordinary_text_has_full_stops_of_any_script(line: str) -> None:
    assert are_of_other_tokens([line], [*line[:-1].split(), line[-1], *map(str, range(99))])
    assert not are_of_other_tokens([f"{line[:-1]} {line[-1]}"], [*map(str, range(99))])


def test_a_multilingual_model_needs_a_direction(model: Trained) -> None:
    task = OmegaConf.create({"lang_pairs": ["en-de", "de-en"], "source_lang": None})
    several = replace(model, state={**model.state, "cfg": OmegaConf.create({"task": task})})
    with refusing("c.pt", "en-de, de-en", "source_lang"):
        translate(several, ["w1"])
