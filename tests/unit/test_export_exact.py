"""An export is exact or fails: weights, dictionaries, lengths, heads, and ``--check``."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import toy
import toy_checkpoints
from fairseq.data import Dictionary, indexed_dataset
from parity.test_prune_parity import trained
from refusals import refusing
from torch import nn, ones, tensor
from toy_reparametrize import TARGET, converted
from toy_reparametrize import check as check_source
from unit.test_checkpoint import STORED, edited
from unit.test_export import SENTENCES, opened, run

from collab_lab import open_model
from collab_lab.cli import export
from collab_lab.export import check, ct2, hf, model
from collab_lab.export.check import compare, sources_to_check
from collab_lab.export.model import Vocabulary, check_engine, vocabulary
from collab_lab.shrinking.cut import reject
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.draft import pruned
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained

FORMATS = ("fairseq", "ct2", "hf")
SYMBOLS = toy.dictionary()
WORDS = Vocabulary("en", "de", SYMBOLS, SYMBOLS)
EXPORTERS: dict[str, Callable[[Trained, Path], object]] = {
    "fairseq": model.write,
    "ct2": lambda source, folder: ct2.write(source, WORDS, folder),
    "hf": lambda source, folder: hf.write(model.plain(source).model, WORDS, folder),
}

# ---- weights -------------------------------------------------------------------------------------

PLACES = {
    "model": "",
    "encoder": "encoder",
    "layer": "decoder.layers.1",
    "attention": "encoder.layers.0.self_attn",
    "projection": "decoder.layers.0.encoder_attn.k_proj",
    "norm": "decoder.layers.0.final_layer_norm",
}


def with_extra(place: str, arch: str = "transformer", name: str = "extra") -> Trained:
    """A model with a weight that nothing knows."""
    source = trained(arch, separate=False)
    if arch == "transformer":
        source.cfg.model.arch = arch
    source.model.get_submodule(PLACES[place]).register_parameter(name, nn.Parameter(ones(2)))
    return source


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("arch", ["transformer", "transformer_headsize_n"])
@pytest.mark.parametrize("place", PLACES)
def test_an_exporter_accounts_for_every_weight(
    place: str, arch: str, format_: str, tmp_path: Path
) -> None:
    with refusing("extra"):
        EXPORTERS[format_](with_extra(place, arch), tmp_path)


@pytest.mark.parametrize("name", ["extra", "own_signature", "theta"])
@pytest.mark.parametrize("place", ["encoder", "layer", "attention"])
def test_pruning_and_conversion_account_for_every_weight(place: str, name: str) -> None:
    if (place, name) == ("attention", "theta"):
        pytest.skip("the gates of an attention")
    source = with_extra(place, name=name)
    nothing = {type_: [[]] * 2 for type_ in source.heads}
    with refusing(name):
        reject(source, [Heads()], "its heads cannot be removed")
        pruned(source, {**nothing, "cross": [[1], [2]]})
    with refusing(name):
        check_source(source, TARGET)
        converted(source, dict.fromkeys(attentions(source.model), 8))


@pytest.mark.parametrize("format_", ["ct2", "hf"])
@pytest.mark.parametrize(
    "options",
    [
        {"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 4},
        {"adaptive_softmax_cutoff": "8"},
        {"decoder_output_dim": 12},
        {"scale_attn": True},
    ],
    ids=str,
)
def test_what_options_add_is_not_dropped(
    options: dict[str, Any], format_: str, tmp_path: Path
) -> None:
    with refusing("weight"):
        EXPORTERS[format_](opened(toy.model("transformer", **options)), tmp_path)


def test_what_options_change_is_not_dropped() -> None:
    with refusing("--quant-noise-scalar"):
        check_engine(opened(toy.model("transformer", quant_noise_scalar=0.1)), "X", ("relu",))


# ---- dictionaries --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stock(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The stored model as fairseq's own: without a signature of its dictionary."""
    folder = tmp_path_factory.mktemp("stock")
    run(edited(folder / "c.pt"), "--format=fairseq", "--out", folder / "plain")
    return folder / "plain" / "model.pt"


@pytest.mark.parametrize(("word", "at"), [("<s>", 0), ("</s>", 15), ("w1", 15)])
def test_words_that_engines_find_elsewhere(word: str, at: int, stock: Path, tmp_path: Path) -> None:
    shutil.copytree(STORED, data := tmp_path / "data")
    for path in data.glob("dict.*"):
        lines = path.read_text().splitlines()[:-1]
        lines.insert(at, f"{word} 0 #fairseq:overwrite")
        path.write_text("\n".join(lines) + "\n")
    with refusing(str(data / "dict.en.txt"), f"{word!r} twice"):
        run(stock, data, "--format=ct2", "--out", tmp_path / "out")


@pytest.mark.parametrize("word", ["<blank>", "<s>", "</s>", "<unk>", "new"])
def test_ctranslate2_reads_each_token_as_fairseq_does(word: str, tmp_path: Path) -> None:
    """Symbols within a text, and words that the dictionary lacks (fairseq masks padding)."""
    source = toy.randomised(toy.model("transformer"), std=1).eval()
    ct2.write(opened(source), WORDS, tmp_path)
    tokens, target = ["w1", word, "w2"], ["w3"]
    (found,) = ctranslate2.Translator(str(tmp_path)).score_batch([tokens], [target])
    encode = partial(SYMBOLS.encode_line, add_if_not_exist=False)
    indices, previous = (encode(" ".join(words)).long()[None] for words in (tokens, target))
    output = source(indices, tensor([4]), tensor([[SYMBOLS.eos(), *previous[0, :-1]]]))
    scores = source.get_normalized_probs(output, log_probs=True)[0].gather(1, previous.T)
    assert found.log_probs == pytest.approx(scores[:, 0].tolist(), abs=1e-4)


# ---- lengths, heads: token for token in three engines --------------------------------------------


def encoded(words: Vocabulary) -> list[Any]:
    encode = partial(words.source.encode_line, add_if_not_exist=False)
    return [encode(" ".join(sentence)).long() for sentence in SENTENCES[:15]]


def check_equal(checkpoint: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The three exports translate as the checkpoint does; returns the translations.

    Greedily: engines end beam searches by different rules, which shows in what has not learnt.
    """
    for module in (check, ct2, hf):
        monkeypatch.setattr(module, "BEAM", 1)
    source = open_model(checkpoint)
    words = vocabulary(source)
    sources = encoded(words)
    expected = check.by_fairseq(source.model, words, sources)
    for format_ in FORMATS:
        run(checkpoint, STORED, f"--format={format_}", "--out", folder / format_)
    plain = open_model(folder / "fairseq" / "model.pt").model
    assert check.by_fairseq(plain, words, sources) == expected
    for engine in (ct2, hf):
        name = engine.__name__.rpartition(".")[2]
        found = engine.translate(source.model, words, folder / name, sources)
        assert found == expected, name
    return expected


@pytest.mark.parametrize(
    ("source", "target"),
    [(12, 6), pytest.param(10, 1024, marks=pytest.mark.slow)],
)
def test_each_side_keeps_its_length(
    source: int,
    target: int,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = {"max_source_positions": source, "max_target_positions": target}
    path = edited(tmp_path / "c.pt", lambda state: state["cfg"]["model"].update(limits))
    found = check_equal(path, tmp_path, monkeypatch)
    assert max(map(len, found)) == target - 1 or target > 10
    longest = min(200, target - 1)
    said = capsys.readouterr().out
    assert f"max_input_length={source}, max_decoding_length={longest}," in said
    assert "KV cache" in said
    read = hf.MarianMTModel.from_pretrained(tmp_path / "hf")
    assert read.generation_config.max_length <= read.config.max_position_embeddings


def test_ctranslate2_takes_sources_of_every_position(tmp_path: Path) -> None:
    """And the limit that is printed lets no longer one pass to where there are none."""
    learned = {f"{side}_learned_pos": True for side in ("encoder", "decoder")}
    source = toy.model("transformer", max_source_positions=6, **learned).eval()
    ct2.write(opened(source), WORDS, tmp_path)
    engine = ctranslate2.Translator(str(tmp_path))
    options = {**ct2.search_options(source), "max_decoding_length": 3}
    for length in (5, 9):
        [result] = engine.translate_batch([["w1"] * length], **options)
        assert len(result.hypotheses[0]) <= 3


KEPT = {
    "unequal": {"encoder": [[0, 2]], "decoder": [[0, 1, 3]], "cross": [[1, 2, 3]]},
    "no divisor": {"encoder": [[0, 1, 2]], "decoder": [[3]], "cross": [[0, 1, 2]]},
    "none in one": {"encoder": [[0, 1, 2, 3]], "decoder": [[]], "cross": [[0, 1, 2]]},
}


@pytest.mark.parametrize("case", KEPT)
def test_pruned_models_are_padded_exactly(
    case: str,
    stock: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model, "MAX_LENGTH", 30)
    smaller = pruned(open_model(stock, STORED), KEPT[case])
    smaller.save(tmp_path / "pruned.pt")
    found = check_equal(tmp_path / "pruned.pt", tmp_path, monkeypatch)
    assert len({*map(tuple, found)}) > 3


def test_a_language_model_is_advised_no_engine_that_refuses_it() -> None:
    source = trained("transformer_lm_headsize_n", separate=False, head_size=6)
    with refusing("6 dimensions") as refusal:
        model.plain(source)
    assert "ct2" not in str(refusal.value)


# ---- --check -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with a validation set."""
    folder = tmp_path_factory.mktemp("data") / "data"
    shutil.copytree(STORED, folder)
    words = Dictionary.load(str(folder / "dict.en.txt"))
    write_set(folder / "valid.en-de.en", words, SENTENCES)
    return folder


def write_set(path: Path, words: Dictionary, sentences: list[list[str]]) -> None:
    """One side of a set, as ``fairseq-preprocess`` writes it."""
    builder = indexed_dataset.make_builder(f"{path}.bin", "mmap", len(words))
    for sentence in sentences:
        builder.add_item(words.encode_line(" ".join(sentence), add_if_not_exist=False))
    builder.finalize(f"{path}.idx")


@pytest.mark.parametrize("format_", FORMATS)
def test_check_translates_in_both_engines(
    format_: str,
    data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model, "MAX_LENGTH", 30)
    path, out = edited(tmp_path / "c.pt"), tmp_path / "out"
    options = [str(path), str(data), f"--format={format_}", "--out", str(out)]
    assert export.main([*options, "--check", "8"]) == 0
    assert "8 of 8 translations equal" in capsys.readouterr().out
    source = open_model(path, data)
    source.model.decoder.embed_tokens.weight.data.neg_()  # another model than the exported one
    lines, are_equal = compare(source, out, format_, sources_to_check(source, 8))
    assert not are_equal
    assert "first other" in "".join(lines)


@pytest.mark.parametrize("format_", FORMATS)
def test_check_compares_attention(
    format_: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of zero: the queries of the last cross-attention have no effect but on attention."""
    monkeypatch.setattr(model, "MAX_LENGTH", 20)
    name = "decoder.layers.0.encoder_attn"
    weights = [f"{name}.v_proj.weight", f"{name}.v_proj.bias"]
    path = edited(tmp_path / "c.pt", lambda s: [s["model"][weight].zero_() for weight in weights])
    run(path, data, f"--format={format_}", "--out", tmp_path / "out")
    source = open_model(path, data)
    sources = sources_to_check(source, 4)
    assert compare(source, tmp_path / "out", format_, sources)[1]
    source.model.get_submodule(name).q_proj.weight.data.mul_(3)
    lines, are_equal = compare(source, tmp_path / "out", format_, sources)
    assert not are_equal
    assert "4 of 4" in lines[0]


def test_check_needs_a_validation_set(tmp_path: Path) -> None:
    path, out = edited(tmp_path / "c.pt"), tmp_path / "out"
    with refusing(str(STORED), "validation set"):
        run(path, STORED, "--format=fairseq", "--check", "--out", out)
    assert not out.exists()


def test_check_needs_a_translation_model(tmp_path: Path) -> None:
    path, out = toy_checkpoints.write(tmp_path / "c.pt", "transformer_lm"), tmp_path / "out"
    with refusing(str(path), "--check"):
        run(path, "--format=fairseq", "--check", "--out", out)
    assert not out.exists()


def test_a_bad_validation_set_leaves_the_export(
    stock: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It has a sentence that is too long; nothing is measured of models with a signature."""
    data = tmp_path / "data"
    shutil.copytree(STORED, data)
    for language in ("en", "de"):
        words = Dictionary.load(str(data / f"dict.{language}.txt"))
        write_set(data / f"valid.en-de.{language}", words, [["w1"] * 2000])
    run(edited(tmp_path / "c.pt"), data, "--format=ct2", "--out", tmp_path / "a")
    assert "was not measured" not in caplog.text
    run(stock, data, "--format=ct2", "--out", tmp_path / "b")
    assert (tmp_path / "b" / "model.bin").exists()
    assert "was not measured" in caplog.text
