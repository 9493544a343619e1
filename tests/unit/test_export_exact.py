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
from unit.test_export import SENTENCES, opened, run, subwords_in

from collab_lab import open_model
from collab_lab.cli import export
from collab_lab.export import check, ct2, engine_support, hf
from collab_lab.export.check import compare, sources_to_check
from collab_lab.export.engine_support import check_engine, longest_output
from collab_lab.export.plain import plain, write_plain
from collab_lab.export.vocabulary import Vocabulary, vocabulary
from collab_lab.runs import length_limit
from collab_lab.shrinking.cut import reject
from collab_lab.shrinking.cuts.heads import Heads
from collab_lab.shrinking.draft import Draft
from collab_lab.shrinking.retained import pruned
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import feed_forwards
from collab_lab.trained.sentences import dataset_of

FORMATS = ("fairseq", "ct2", "hf")
SYMBOLS = toy.dictionary()
WORDS = Vocabulary("en", "de", SYMBOLS, SYMBOLS)
EXPORTERS: dict[str, Callable[[Trained, Path], object]] = {
    "fairseq": write_plain,
    "ct2": lambda source, folder: ct2.write(source, WORDS, folder),
    "hf": lambda source, folder: hf.write(plain(source).model, WORDS, folder),
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
        source = opened(toy.model("transformer", **options), "transformer", **options)
        EXPORTERS[format_](source, tmp_path)


def test_what_options_change_is_not_dropped() -> None:
    with refusing("--quant-noise-scalar"):
        options = {"quant_noise_scalar": 0.1}
        source = opened(toy.model("transformer", **options), "transformer", **options)
        check_engine(source, "X", ("relu",))


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


def test_tags_that_are_no_subwords_are_said(
    stock: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(STORED, data := tmp_path / "data")
    for path in data.glob("dict.*"):
        path.write_text("\n".join([*path.read_text().splitlines()[:-1], "<2de> 1\n"]))
    subwords_in(tmp_path / "subwords")
    shutil.copy(tmp_path / "subwords" / "spm.model", data)
    run(stock, data, "--format=ct2", "--out", tmp_path / "out")
    assert "warning: the dictionary has tags (<2de>) that spm.model cuts" in capsys.readouterr().out


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


@pytest.mark.parametrize(("source", "target"), [(12, 6), (10, 1024)])
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
    assert "KV cache" in capsys.readouterr().out
    read = hf.MarianMTModel.from_pretrained(tmp_path / "hf")
    assert read.generation_config.max_length == target + 1 <= read.config.max_position_embeddings


@pytest.mark.parametrize("learned", [False, True])
def test_ctranslate2_takes_sources_of_every_position(learned: bool, tmp_path: Path) -> None:
    """And cuts no longer one: an error says that there are no positions."""
    positions = {f"{side}_learned_pos": learned for side in ("encoder", "decoder")}
    source = toy.model("transformer", max_source_positions=6, **positions).eval()
    ct2.write(opened(source), WORDS, tmp_path)
    engine = ctranslate2.Translator(str(tmp_path))
    assert engine.translate_batch([["w1"] * 5], **ct2.search_options(source, 5))
    with pytest.raises(RuntimeError, match="position"):
        engine.translate_batch([["w1"] * 9], **ct2.search_options(source, 9))


def endless(path: Path) -> Path:
    """A checkpoint of a model that never ends a translation by itself."""

    def edit(state: dict[str, Any]) -> None:
        weights = state["model"]
        norm = "decoder.layers.0.final_layer_norm"
        weights[f"{norm}.bias"] = weights[f"{norm}.bias"].clone().fill_(1.0)
        for name in ("decoder.embed_tokens.weight", "decoder.output_projection.weight"):
            weights[name][SYMBOLS.eos()] = -5.0

    return edited(path, edit)


@pytest.mark.slow
@pytest.mark.parametrize("format_", FORMATS)
def test_no_engine_cuts_a_document(
    format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Beyond fairseq's 200 tokens; ``--check`` says that it compared nothing behind the limit."""
    for module in (check, ct2, hf):
        monkeypatch.setattr(module, "BEAM", 1)
    path = endless(tmp_path / "c.pt")
    run(path, STORED, f"--format={format_}", "--out", tmp_path / "out")
    source = open_model(path)
    words = vocabulary(source)
    document = " ".join(SENTENCES[i % 40][0] for i in range(99))
    sources = [words.source.encode_line(document, add_if_not_exist=False).long()]
    found = check.by_fairseq(source.model, words, sources)
    assert len(found[0]) == 2 * 100 + 20
    lines, are_equal = compare(source, tmp_path / "out", format_, sources)
    assert are_equal
    assert "1 of 1 translations end at or near the limit" in "".join(lines)


def test_the_limit_is_that_of_runs() -> None:
    assert engine_support.LENGTH_LIMIT == length_limit.LENGTH_LIMIT
    short = toy.model("transformer", max_target_positions=30)
    assert [longest_output(short, source) for source in (3, 9)] == [26, 29]


def printed(capsys: pytest.CaptureFixture[str], name: str) -> str:
    """The call that an export prints."""
    (line,) = [line for line in capsys.readouterr().out.splitlines() if f"{name}(" in line]
    return line[line.index(f"{name}(") :]


def test_what_the_printed_call_makes_of_an_empty_line_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """fairseq makes up words."""
    path = endless(tmp_path / "c.pt")
    run(path, STORED, "--format=ct2", "--out", tmp_path / "ct2")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "translate_batch(" in line]
    assert "an empty line stays empty" in line
    call = line[line.index("translate_batch(") :]
    engine = ctranslate2.Translator(str(tmp_path / "ct2"))
    names = {"tokens": [[], ["w1"]], "translate_batch": engine.translate_batch}
    found = [result.hypotheses[0] for result in eval(call, names)]
    assert [bool(words) for words in found] == [False, True]
    source = open_model(path)
    words = vocabulary(source)
    assert check.by_fairseq(source.model, words, [tensor([words.source.eos()])])[0]


@pytest.mark.parametrize("most", [25, 1024])
def test_the_printed_calls_translate_alike(
    most: int, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (check, ct2, hf):
        monkeypatch.setattr(module, "BEAM", 1)
    path = endless(tmp_path / "c.pt")
    source = open_model(path, max_target_positions=most)
    words = vocabulary(source)
    sources = encoded(words)
    (expected,) = {len(tokens) for tokens in check.by_fairseq(source.model, words, sources)}
    source.save(path)
    for format_ in ("ct2", "hf"):
        run(path, STORED, f"--format={format_}", "--out", tmp_path / format_)
        if format_ == "ct2":
            engine: Any = ctranslate2.Translator(str(tmp_path / "ct2"))
            names = {"tokens": SENTENCES[:15], "translate_batch": engine.translate_batch}
            found = [r.hypotheses[0] for r in eval(printed(capsys, "translate_batch"), names)]
        else:
            engine = hf.MarianMTModel.from_pretrained(tmp_path / "hf")
            (tokens,) = check.batches(sources, words.source.pad())
            inputs = {"input_ids": tokens, "attention_mask": tokens.ne(words.source.pad()).long()}
            names = {"inputs": inputs, "generate": partial(engine.generate, num_beams=1)}
            found = [row[1:-1] for row in eval(printed(capsys, "generate"), names).tolist()]
        assert {*map(len, found)} == {expected}


def test_sources_are_cut_as_in_the_training(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With --truncate-source."""
    cut = {"truncate_source": True, "max_source_positions": 6}
    path = edited(tmp_path / "c.pt", lambda state: state["cfg"]["task"].update(cut))
    source = open_model(path, data)
    words, dataset = vocabulary(source), dataset_of(source, "valid")
    sources = [dataset[i]["source"] for i in range(len(dataset))]
    assert max(map(len, sources)) == 6 < max(map(len, SENTENCES))
    run(path, data, "--format=ct2", "--out", tmp_path / "ct2")
    engine: Any = ctranslate2.Translator(str(tmp_path / "ct2"))
    names = {"tokens": SENTENCES, "translate_batch": engine.translate_batch}
    found = [r.hypotheses[0] for r in eval(printed(capsys, "translate_batch"), names)]
    model = source.model
    assert found == [
        [words.target[i] for i in line]
        for one in sources for line in check.by_fairseq(model, words, [one])
    ]  # fmt: skip
    for format_, said in (("hf", "max_length=6"), ("onnx", "leaves such lines out")):
        run(path, data, f"--format={format_}", "--out", tmp_path / format_)
        assert said in capsys.readouterr().out


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
    smaller = pruned(open_model(stock, STORED), KEPT[case])
    smaller.save(tmp_path / "pruned.pt")
    found = check_equal(tmp_path / "pruned.pt", tmp_path, monkeypatch)
    assert len({*map(tuple, found)}) > 3


def test_blocks_without_units_are_padded_exactly(
    stock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    draft = Draft(open_model(stock, STORED))
    for block in feed_forwards(draft.trained.model):
        draft.keep_units(block, ())
    draft.build().save(tmp_path / "pruned.pt")
    check_equal(tmp_path / "pruned.pt", tmp_path, monkeypatch)


def test_a_language_model_is_advised_no_engine_that_refuses_it() -> None:
    source = trained("transformer_lm_headsize_n", separate=False, head_size=6)
    with refusing("6 dimensions") as refusal:
        plain(source)
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
    path, out = edited(tmp_path / "c.pt"), tmp_path / "out"
    options = [str(path), str(data), f"--format={format_}", "--out", str(out)]
    assert export.main([*options, "--check", "8"]) == 0
    assert "8 of 8 translations equal" in capsys.readouterr().out
    source = open_model(path, data)
    source.model.decoder.embed_tokens.weight.data.neg_()  # another model than the exported one
    lines, are_equal = compare(source, out, format_, sources_to_check(source, 8))
    assert not are_equal
    assert "first other" in "".join(lines)


@pytest.mark.parametrize("learned", [False, True])
def test_positions_survive_a_save(
    learned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the line that the export prints: transformers would make a table anew."""
    positions = {f"{side}_learned_pos": learned for side in ("encoder", "decoder")}
    hf.write(toy.model("transformer", **positions), WORDS, tmp_path)
    assert hf.survives_saving(tmp_path)
    monkeypatch.setattr(hf, "save_all", saved_as_printed)
    assert hf.survives_saving(tmp_path)
    monkeypatch.setattr(hf, "save_all", hf.MarianMTModel.save_pretrained)
    assert not hf.survives_saving(tmp_path)


@pytest.mark.parametrize("activations", ["activation_dropout", "relu_dropout"])
def test_what_a_training_drops_is_dropped_in_hugging_face(activations: str, tmp_path: Path) -> None:
    """A model that is fine-tuned there would be trained otherwise."""
    rates = {"dropout": 0.1, "attention_dropout": 0.2, activations: 0.3}
    rates |= {"encoder_layerdrop": 0.4, "decoder_layerdrop": 0.5}
    hf.write(toy.model("transformer", **rates), WORDS, tmp_path)
    read = hf.MarianMTModel.from_pretrained(tmp_path).config
    found = [read.dropout, read.attention_dropout, read.activation_dropout]
    assert [*found, read.encoder_layerdrop, read.decoder_layerdrop] == [0.1, 0.2, 0.3, 0.4, 0.5]


def saved_as_printed(model: Any, folder: str) -> None:
    exec(hf.SAVE_ALL, {"model": model})
    model.save_pretrained(folder)


def test_check_tries_a_save(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = [str(edited(tmp_path / "c.pt")), str(data), "--format=hf", "--check=2", "--out"]
    assert export.main([*options, str(tmp_path / "a")]) == 0
    said = capsys.readouterr().out
    assert said.count(hf.SAVE_ALL) == 2  # of the export, and of the check
    assert "no tokeniser" in said
    monkeypatch.setattr(hf, "save_all", hf.MarianMTModel.save_pretrained)
    assert export.main([*options, str(tmp_path / "b")]) == 1


@pytest.mark.parametrize("format_", FORMATS)
def test_check_compares_attention(
    format_: str, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values of zero: the queries of the last cross-attention have no effect but on attention."""
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


@pytest.mark.parametrize("shared", [False, True])
def test_a_model_without_cross_attention(
    shared: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It has no attention to compare."""
    options = {"no_cross_attention": True, "cross_self_attention": shared}
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer", **options)
    run(path, toy_checkpoints.COPY, "--format=fairseq", "--out", tmp_path / "out")
    assert "attention to words: none" in capsys.readouterr().out
    source = open_model(path)
    assert compare(source, tmp_path / "out", "fairseq", encoded(vocabulary(source))[:4])[1]


def test_check_needs_a_validation_set(tmp_path: Path) -> None:
    path, out = edited(tmp_path / "c.pt"), tmp_path / "out"
    with refusing(str(STORED), "validation set"):
        run(path, STORED, "--format=fairseq", "--check", "--out", out)
    assert not out.exists()


def test_check_says_what_it_leaves_out(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    short = {"max_source_positions": 6}
    path = edited(tmp_path / "c.pt", lambda state: state["cfg"]["model"].update(short))
    kept = sum(len(sentence) < 6 for sentence in SENTENCES)
    assert len(sources_to_check(open_model(path, data), 99)) == kept
    assert f"{len(SENTENCES) - kept} of {len(SENTENCES)} sentences" in caplog.text


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
    assert "could not check" not in caplog.text
    run(stock, data, "--format=ct2", "--out", tmp_path / "b")
    assert (tmp_path / "b" / "model.bin").exists()
    assert "could not check" in caplog.text
