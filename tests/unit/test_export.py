"""Exported folders: other engines read them and translate alike; what fails, and how."""

from __future__ import annotations

import errno
import json
import os
import random
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import sentencepiece
import torch
import toy
import toy_checkpoints
import toy_task
from commands import REPOSITORY
from fairseq import models
from fairseq.checkpoint_utils import load_model_ensemble_and_task
from fairseq.models.transformer import TransformerModel
from fairseq.utils import import_user_module
from omegaconf import OmegaConf
from refusals import refusing
from toy_language_models import language_model, language_model_options
from transformers import AutoTokenizer, MarianMTModel
from unit.test_checkpoint import edited

from collab_lab import open_model
from collab_lab.cli import export
from collab_lab.export import check, ct2, hf
from collab_lab.export.engine_support import check_engine
from collab_lab.export.plain import plain
from collab_lab.export.vocabulary import Vocabulary, language_tags, vocabulary
from collab_lab.trained.checkpoint import Trained
from fairseq_compat import checkpoints

CHANCE = random.Random(3)
SENTENCES = [[f"w{CHANCE.randrange(12)}" for _ in range(CHANCE.randint(1, 9))] for _ in range(40)]


def run(*arguments: object) -> None:
    assert export.main([str(argument) for argument in arguments]) == 0


def opened(model: Any, arch: str | None = None, **options: Any) -> Trained:
    """A model as from a checkpoint, with its architecture and options where they matter."""
    cfg = OmegaConf.create({"model": {}}, flags={"allow_objects": True})
    if arch is not None:
        cfg.model = Namespace(**{**toy.SIZES, **options}, _name=arch, arch=arch)
    return Trained(Path("c.pt"), {"cfg": cfg}, model, toy.task())


def engine(model: Any, folder: Path) -> ctranslate2.Translator:
    """CTranslate2 with the exported model."""
    words = Vocabulary("en", "de", toy.dictionary(), toy.dictionary())
    ct2.write(opened(model), words, folder)
    return ctranslate2.Translator(str(folder), intra_threads=1)


@pytest.mark.parametrize(
    "options",
    [
        {"share_all_embeddings": True},
        {"share_decoder_input_output_embed": True},
        {},
        {"encoder_learned_pos": True, "decoder_learned_pos": True, "max_target_positions": 20},
        {"activation_fn": "gelu"},
    ],
    ids=str,
)
def test_marian_computes_the_same_scores(options: dict[str, Any], tmp_path: Path) -> None:
    """Every way to share embeddings, and every kind of position."""

    model = toy.model("transformer", **options).eval()
    symbols = toy.dictionary()
    words = Vocabulary("en", "de", symbols, symbols)
    hf.write(model, words, tmp_path)
    marian = MarianMTModel.from_pretrained(tmp_path).eval()
    source = torch.tensor([[5, 6, 7, 8, 2], [9, 5, 2, 1, 1]])  # fairseq takes padding on this side
    previous = torch.tensor([[2, 9, 8], [2, 5, 7]])
    logits, _ = model(source, source.ne(1).sum(1), previous)
    found = marian(
        input_ids=source, attention_mask=source.ne(1).long(), decoder_input_ids=previous
    ).logits
    torch.testing.assert_close(found, logits, rtol=0, atol=1e-5)


def subwords_in(
    folder: Path, vocab_size: int = 32, **options: Any
) -> sentencepiece.SentencePieceProcessor:
    """A subword model ``spm.model`` of a few words."""
    folder.mkdir(parents=True)
    text = "".join(f"{' '.join(words)} A dog runs.\n" for words in SENTENCES)
    text += "</s> <pad> <unk> s p a d u n k / < >\n"
    (folder / "text").write_text(text)
    sentencepiece.SentencePieceTrainer.train(
        input=str(folder / "text"), model_prefix=str(folder / "spm"), vocab_size=vocab_size,
        minloglevel=2, **options,
    )  # fmt: skip
    return sentencepiece.SentencePieceProcessor(str(folder / "spm.model"))


def test_the_tokeniser_is_the_subword_model(tmp_path: Path) -> None:
    """A dictionary of sentencepiece's pieces."""
    pieces, symbols = subwords_in(tmp_path / "data"), toy.dictionary(0)
    for i in range(3, pieces.get_piece_size()):
        symbols.add_symbol(pieces.id_to_piece(i))
    task = Namespace(source_dictionary=symbols, target_dictionary=symbols)
    model = toy.model("transformer", task, share_all_embeddings=True)
    words = Vocabulary("en", "de", symbols, symbols, tmp_path / "data" / "spm.model")
    (tmp_path / "hf").mkdir()
    hf.write(model, words, tmp_path / "hf")
    tokeniser = AutoTokenizer.from_pretrained(tmp_path / "hf")
    # Symbols in a text are text.
    for sentence in ("w1 </s> w2", "<s>", "<pad>w3", "w1<unk>"):
        found = pieces.encode(sentence, out_type=str)
        assert tokeniser(sentence)["input_ids"] == [*map(symbols.index, found), symbols.eos()]
    sentence = " ".join(SENTENCES[0])
    expected = [symbols.index(p) for p in pieces.encode(sentence, out_type=str)] + [symbols.eos()]
    assert tokeniser(sentence)["input_ids"] == expected
    assert tokeniser.decode(expected, skip_special_tokens=True) == sentence
    # The default of transformers 4 would write "ja !" as "ja!".
    settings = json.loads((tmp_path / "hf" / "tokenizer_config.json").read_text())
    assert settings["clean_up_tokenization_spaces"] is False


def of_pieces(processor: sentencepiece.SentencePieceProcessor) -> tuple[Any, Any]:
    """A random model, and its dictionary, of sentencepiece's pieces."""
    symbols = toy.dictionary(0)
    for i in range(3, processor.get_piece_size()):
        symbols.add_symbol(processor.id_to_piece(i))
    task = Namespace(source_dictionary=symbols, target_dictionary=symbols)
    torch.manual_seed(1)
    model = toy.randomised(toy.model("transformer", task, share_all_embeddings=True), std=1)
    return model.eval(), symbols


def test_the_lines_of_the_page_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """CTranslate2 called as the page says finds fairseq's translation; a shortlist is read."""
    pieces = subwords_in(tmp_path / "my-data")
    model, symbols = of_pieces(pieces)
    words = Vocabulary("en", "de", symbols, symbols)
    for name in ("ct2-model", "my-text"):
        (tmp_path / name).mkdir()
    ct2.write(opened(model), words, tmp_path / "ct2-model")
    for language in ("en", "de"):
        (tmp_path / "my-text" / f"train.{language}").write_text("A dog runs.\nw1 w2\n")
    page = (REPOSITORY / "docs" / "trained_models.md").read_text()
    call, shortlist = re.findall(r"```python\n(import (?:ctranslate2|coll).*?)```", page, re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    exec(call.replace("beam_size=5", "beam_size=1"), names)
    monkeypatch.setattr(check, "BEAM", 1)
    source = torch.tensor([*map(symbols.index, pieces.encode("A dog runs.", out_type=str)), 2])
    (expected,) = check.by_fairseq(model, words, [source])
    assert capsys.readouterr().out == f"{[pieces.decode([symbols[i] for i in expected])]}\n"
    exec(shortlist, names)
    listed = ctranslate2.Translator("ct2-model").translate_batch(
        names["tokens"], use_vmap=True, max_decoding_length=20
    )
    seen = {*pieces.encode("A dog runs. w1 w2", out_type=str)}
    assert {*listed[0].hypotheses[0]} <= seen | {"<unk>"}


def test_bytes_are_joined_by_the_tokeniser(tmp_path: Path) -> None:
    """Of a subword model with byte fallback; ``pieces.decode`` joins them for CTranslate2."""
    pieces = subwords_in(tmp_path / "data", vocab_size=288, byte_fallback=True)
    model, symbols = of_pieces(pieces)
    (tmp_path / "hf").mkdir()
    hf.write(
        model,
        Vocabulary("en", "de", symbols, symbols, tmp_path / "data" / "spm.model"),
        tmp_path / "hf",
    )
    tokeniser, text = AutoTokenizer.from_pretrained(tmp_path / "hf"), "A ж dog"
    found = pieces.encode(text, out_type=str)
    assert "<0xD0>" in found
    assert pieces.decode(found) == text
    indices = tokeniser(text)["input_ids"]
    assert indices == [*map(symbols.index, found), symbols.eos()]
    assert tokeniser.decode(indices, skip_special_tokens=True) == text


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer", {"encoder_normalize_before": True, "layernorm_embedding": True}),
        ("transformer", {"encoder_learned_pos": True, "no_scale_embedding": True}),
        ("transformer", {"encoder_attention_heads": 2, "activation_fn": "gelu"}),
        ("transformer_collab", {"key_dim": 11}),
        ("transformer_collab", {"key_dim": 7, "value_heads": 2}),
        ("transformer_grouped_query", {"key_value_heads": 2, "key_value_heads_in_cross": "1,4"}),
        ("transformer_latent", {"latent_dim": 5, "head_size": 3}),
        ("transformer_headsize_n", {"head_size": 5, "heads_in_encoder": "3"}),
        ("transformer_headsize_n", {"qk_head_size": 2, "v_head_size": 7}),
        ("transformer_headsize_n", {"heads_in_encoder": "3,0", "head_size": 5}),
        ("transformer_headsize_n", {"heads_in_decoder": "0", "heads_in_cross": "4,0"}),
    ],
    ids=str,
)
def test_ctranslate2_computes_the_same_scores(
    arch: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Heads of every size and key dimensions above d/H included."""

    model = toy.model(arch, **options).eval()
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.normal_(parameter)
    symbols = toy.dictionary()
    source, target = ["w1", "w2", "w3", "w1"], ["w7", "w8", "w5"]
    (found,) = engine(model, tmp_path).score_batch([source], [target])
    indices = [symbols.index(word) for word in target]
    tokens = torch.tensor([[*map(symbols.index, source), symbols.eos()]])
    previous = torch.tensor([[symbols.eos(), *indices]])
    output = model(tokens, torch.tensor([tokens.size(1)]), previous)
    scores = model.get_normalized_probs(output, log_probs=True)[0]
    expected = [scores[i, word].item() for i, word in enumerate([*indices, symbols.eos()])]
    assert found.log_probs == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer", {}),
        ("transformer_collab", {"key_dim": 7}),
        ("transformer_grouped_query", {"key_value_heads": 2}),
        ("transformer_grouped_query", {"key_value_heads": 1}),
        ("transformer_headsize_n", {"head_size": 5, "heads_in_cross": "4,3"}),
        ("transformer_headsize_n", {"head_size": 5, "heads_in_cross": "3,1"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("beam", [1, 3])
def test_attention_in_ctranslate2_is_the_mean_over_heads(
    arch: str, options: dict[str, Any], beam: int, tmp_path: Path
) -> None:
    """Of the last layer, without the heads that fill up a layer."""
    torch.manual_seed(1)
    model = toy.randomised(toy.model(arch, **options), std=1).eval()
    words = Vocabulary("en", "de", toy.dictionary(), toy.dictionary())
    ct2.write(opened(model), words, tmp_path)
    results = ctranslate2.Translator(str(tmp_path), intra_threads=1).translate_batch(
        SENTENCES[:6],
        beam_size=beam,
        max_decoding_length=5,
        return_attention=True,
        suppress_sequences=[[words.target.pad_word]],
        max_batch_size=1,
    )
    sources = [words.source.encode_line(" ".join(s)).long() for s in SENTENCES[:6]]
    tokens = [[words.target.index(word) for word in r.hypotheses[0]] for r in results]
    expected = check.attention(check.batch_attention(model, words), words, sources, tokens)
    for result, weights in zip(results, expected, strict=True):
        torch.testing.assert_close(torch.tensor(result.attention[0]), weights, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("arch", "options", "own", "there"),
    [
        ("transformer", {}, 32, 32),
        ("transformer_collab", {"key_dim": 4}, 20, 32),  # a copy of the key per head
        ("transformer_collab", {"key_dim": 6, "value_heads": 1}, 10, 12),  # values are filled up
        ("transformer_grouped_query", {"key_value_heads": 1}, 8, 8),
        ("transformer_latent", {"latent_dim": 5}, 5, 32),
        ("transformer_headsize_n", {"heads_in_decoder": "0"}, 0, 32),
    ],
    ids=str,
)
def test_the_cache_of_ctranslate2_is_printed(
    arch: str, options: dict[str, Any], own: int, there: int
) -> None:
    """Numbers per target token and layer; ``there`` are rows of the exported keys and values."""
    source = opened(toy.model(arch, **options))
    words = Vocabulary("en", "de", toy.dictionary(), toy.dictionary())
    layers = ct2.specification(source, words).decoder.layer
    _, heads, size = ct2.layout(source, "decoder")
    rows = sum(len(layer.self_attention.linear[0].weight) - heads * size for layer in layers)
    assert rows == there * len(layers)
    assert ct2.cache_bytes(source)["target"] == (2 * own * len(layers), 2 * rows)


# ---- failures -----------------------------------------------------------------------------------


def fails(message: str, *arguments: object) -> None:
    with refusing(message):
        run(*arguments)


def test_a_full_disk_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path = edited(tmp_path / "c.pt")
    monkeypatch.setattr(os, "fsync", full)
    fails(f"{tmp_path / 'out'}: No space left", path, "--format=ct2", "--out", tmp_path / "out")
    assert [*tmp_path.iterdir()] == [path]


class Other(TransformerModel):
    """It may compute something else."""


def test_own_heads_are_opened_with_their_plug_in(tmp_path: Path) -> None:
    plugin = Path(__file__).parents[1] / "examples" / "tied_heads"
    import_user_module(Namespace(user_dir=str(plugin)))
    path = toy_checkpoints.write(tmp_path / "c.pt", "transformer_tied_heads")
    options = ["--format=ct2", "--user-dir", plugin, "--out", tmp_path / "out"]
    fails("TiedAttention", path, *options)


@pytest.mark.parametrize("kind", ["transformer", "transformer_lm"])
def test_stock_fairseq_has_no_names_of_plug_ins(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as that of an architecture of nothing but sizes."""
    state = toy_checkpoints.made(kind)
    whole = tmp_path / "whole.pt"
    torch.save(state, whole)
    monkeypatch.setitem(models.ARCH_MODEL_REGISTRY, "mine", models.ARCH_MODEL_REGISTRY[kind])
    monkeypatch.setitem(models.ARCH_CONFIG_REGISTRY, "mine", lambda options: None)
    options = state["cfg"]["model"]
    of_it = vars(options) if isinstance(options, Namespace) else options
    of_it |= {"_name": "mine", "arch": "mine"}
    torch.save(state, path := tmp_path / "c.pt")
    run(path, "--format=fairseq", "--out", tmp_path / "out")
    monkeypatch.undo()
    (model,), *_ = load_model_ensemble_and_task([str(tmp_path / "out" / "model.pt")])
    (expected,), *_ = load_model_ensemble_and_task([str(whole)])
    assert type(model) is type(expected)
    for name, weight in expected.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name


@pytest.mark.parametrize("arch", ["transformer", "transformer_headsize_n"])
def test_a_task_of_a_plug_in_stays_and_is_said(
    arch: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """For other engines, and for a comparison, such a task is not known."""
    state = toy_checkpoints.made(arch)
    state["cfg"]["task"]["_name"] = toy_task.NAME
    state["cfg"]["common"]["user_dir"] = "mine"
    torch.save(state, path := tmp_path / "c.pt")
    run(path, "--format=fairseq", "--out", tmp_path / "out")
    assert f"--task {toy_task.NAME}" in capsys.readouterr().out
    cfg = checkpoints.read(tmp_path / "out" / "model.pt")["cfg"]
    assert cfg["common"]["user_dir"] == "mine"
    (model,), _, task = load_model_ensemble_and_task([str(tmp_path / "out" / "model.pt")])
    assert (type(model), type(task)) == (TransformerModel, toy_task.OwnTask)
    fails("without --check", path, "--format=fairseq", "--check", "--out", tmp_path / "again")
    for engine_ in ("ct2", "hf", "onnx"):
        fails(toy_task.NAME, path, f"--format={engine_}", "--out", tmp_path / engine_)


@pytest.mark.parametrize("format_", ["fairseq", "hf", "ct2", "onnx"])
def test_what_is_wrong_with_the_model_comes_first(format_: str, tmp_path: Path) -> None:
    """An mBART's task is no reason to try the format that does not know the model either."""
    options = dict.fromkeys(
        ("encoder_learned_pos", "decoder_learned_pos", "layernorm_embedding"), True
    )
    state = toy_checkpoints.made("mbart_base", **options)
    state["cfg"]["task"]["_name"] = toy_task.NAME
    torch.save(state, path := tmp_path / "c.pt")
    with refusing(str(path), "BARTModel") as error:
        run(path, toy_checkpoints.COPY, f"--format={format_}", "--check", "--out", tmp_path / "out")
    assert "--format" not in str(error.value)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_precision_that_does_not_stay_is_said(
    dtype: torch.dtype, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The file is twice as large."""

    def rounded(state: dict[str, Any]) -> None:
        weights = state["model"].items()
        state["model"] = {n: w.to(dtype) if w.is_floating_point() else w for n, w in weights}

    run(edited(tmp_path / "c.pt", rounded), "--format=fairseq", "--out", tmp_path / "out")
    said = capsys.readouterr().out
    assert ("single precision" in said) == (dtype != torch.float32)
    assert "--task" not in said, "its task is fairseq's, and needs no plug-in"
    saved = checkpoints.read(tmp_path / "out" / "model.pt")["model"]
    assert saved["encoder.embed_tokens.weight"].dtype == torch.float32


def test_models_that_cannot_be_exported() -> None:
    source = opened(toy.model("transformer"))
    source.model.__class__ = Other
    source.state["cfg"] = OmegaConf.create({"model": {"_name": "other"}})
    for rejects in (plain, lambda source: check_engine(source, "Marian", ())):
        with refusing("c.pt", "'other'"):
            rejects(source)


@pytest.mark.parametrize("name", ["fairseq", "ct2"])
def test_the_rounding_of_a_cache_is_left_out_on_request_only(name: str, tmp_path: Path) -> None:
    path, out = tmp_path / "c.pt", tmp_path / "out"
    edited(path, lambda state: state["cfg"]["model"].update(cache_bits_in_cross="4"))
    options = [path, f"--format={name}", "--out", out]
    fails(str(path), *options)
    run(*options, "--no-cache-bits")
    assert out.is_dir()


def test_other_tasks_have_no_vocabulary() -> None:
    state = {"cfg": OmegaConf.create({"model": {}, "task": {"_name": "denoising"}})}
    with refusing("c.pt", "'denoising'"):
        vocabulary(Trained(Path("c.pt"), state, None, None))
    with refusing("TransformerLanguageModel"):
        arch = "transformer_lm"
        model = opened(language_model(arch), arch, **language_model_options(arch))
        check_engine(model, "Marian", ())


def test_symbols_of_languages_that_an_engine_has_no_place_for() -> None:
    """They would be the end of a source, and the beginning of a translation."""
    state = {"cfg": OmegaConf.create({"model": {}})}
    task = Namespace(args=Namespace(lang_tok_replacing_bos_eos=True), data_manager=None)
    with refusing("c.pt", "--lang-tok-replacing-bos-eos"):
        language_tags(Trained(Path("c.pt"), state, None, task))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cross_self_attention": True, "no_cross_attention": True}, "--cross-self-attention"),
        ({"encoder_embed_dim": 8, "encoder_attention_heads": 2}, "8 and 16"),
        ({"no_token_positional_embeddings": True}, "--no-token-positional-embeddings"),
        ({"activation_fn": "relu_squared"}, "--activation-fn relu_squared"),
        ({"encoder_normalize_before": True}, "--encoder-normalize-before"),
        ({"layernorm_embedding": True}, "--layernorm-embedding"),
    ],
)
def test_what_marian_does_not_support(options: dict[str, Any], message: str) -> None:
    with refusing(message, "c.pt", "Marian"):
        model = opened(toy.model("transformer", **options), "transformer", **options)
        check_engine(model, "Marian", hf.ACTIVATIONS, True)


def test_translations_near_the_limit_are_said(tmp_path: Path) -> None:
    """Of either engine: next to a limit, a search prefers what just ends before it."""
    model = open_model(toy_checkpoints.write(tmp_path / "c.pt"), toy_checkpoints.COPY).model
    source = [4] * 5  # whose limit is 30
    for ours, theirs, is_said in ((28, 28, False), (29, 10, True), (10, 30, True)):
        lines = check.lines_at_limit(model, [source], [[4] * ours], [[4] * theirs])
        assert bool(lines) == is_said
