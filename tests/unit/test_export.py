"""Exported files: other engines read them and translate alike; what cannot be is refused."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
from argparse import Namespace
from pathlib import Path
from typing import Any

import ctranslate2
import pytest
import torch
import toy
from fairseq import checkpoint_utils
from fairseq.sequence_generator import SequenceGenerator
from omegaconf import OmegaConf
from refusals import refusing, wrong_usage
from safetensors import safe_open
from toy_language_models import language_model
from transformers import GenerationConfig, MarianMTModel, MarianTokenizer
from unit.test_opener import STORED, edited

from collab_common.errors import UserError
from fairseq_collab.commands import export
from fairseq_collab.export import ctranslate2_format, hugging_face, translation
from fairseq_collab.trained.opener import Trained
from fairseq_compat import checkpoints

CHECKPOINT = STORED / "checkpoint.pt"
LANGUAGES = ["--source-lang=en", "--target-lang=de"]
VOCABULARY = ["--data", STORED, *LANGUAGES]
CHANCE = random.Random(3)
SENTENCES = [[f"w{CHANCE.randrange(12)}" for _ in range(CHANCE.randint(1, 9))] for _ in range(40)]


def run(*arguments: object) -> None:
    assert export.main([str(argument) for argument in arguments]) == 0


def refused(*arguments: object) -> str:
    with pytest.raises(UserError) as refusal:
        run(*arguments)
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def opened(model: Any) -> Trained:
    return Trained(Path("c.pt"), {}, model, None)


def translations(checkpoint: Path, beam: int = 5) -> list[list[str]]:
    """What fairseq's generator makes of :data:`SENTENCES`."""
    overrides = {"data": str(STORED), "source_lang": "en", "target_lang": "de"}
    (model,), _, task = checkpoint_utils.load_model_ensemble_and_task([str(checkpoint)], overrides)
    words = task.target_dictionary
    generator = SequenceGenerator([model.eval()], words, beam_size=beam, max_len_b=200)
    found = []
    for sentence in SENTENCES:
        tokens = torch.tensor([[*map(words.index, sentence), words.eos()]])
        batch = {"src_tokens": tokens, "src_lengths": torch.tensor([tokens.size(1)])}
        best = generator.generate([model], {"net_input": batch})[0][0]["tokens"]
        found.append([words[i] for i in best if i != words.eos()])
    return found


@pytest.fixture(scope="module")
def expected() -> list[list[str]]:
    found = translations(CHECKPOINT)
    assert len({tuple(sentence) for sentence in found}) > 30  # a model that has learnt to copy
    return found


def test_fairseqs_own_transformer_translates_alike(
    expected: list[list[str]], tmp_path: Path
) -> None:
    out = tmp_path / "plain.pt"
    run(CHECKPOINT, "--format=fairseq", "--out", out)
    state = checkpoints.read(out)
    assert state["cfg"]["model"].arch == "transformer"
    assert state["cfg"]["common"]["user_dir"] is None
    assert not [name for name in state["model"] if "signature" in name or "mixing" in name]
    assert "last_optimizer_state" not in state
    assert translations(out) == expected


def test_ctranslate2_translates_alike(expected: list[list[str]], tmp_path: Path) -> None:
    out = tmp_path / "ct2"
    run(CHECKPOINT, "--format=ct2", "--out", out, *VOCABULARY)
    engine = ctranslate2.Translator(str(out), intra_threads=1)
    found = engine.translate_batch(SENTENCES, beam_size=5, max_decoding_length=200)
    assert [result.hypotheses[0] for result in found] == expected


def test_hugging_face_translates_alike(expected: list[list[str]], tmp_path: Path) -> None:
    out = tmp_path / "hf"
    run(CHECKPOINT, "--format=hf", "--out", out, *VOCABULARY)
    model = MarianMTModel.from_pretrained(out).eval()
    indices = json.loads((out / "vocab.json").read_text())
    words = {index: word for word, index in indices.items()}
    tokens = torch.full((len(SENTENCES), 10), model.config.pad_token_id)
    for row, sentence in zip(tokens, SENTENCES, strict=True):
        row[: len(sentence) + 1] = torch.tensor([indices[word] for word in [*sentence, "</s>"]])
    mask = tokens.ne(model.config.pad_token_id).long()
    found = model.generate(input_ids=tokens, attention_mask=mask)
    texts = [[words[i] for i in row if words[i] not in ("</s>", "<pad>")] for row in found.tolist()]
    assert texts == expected
    generation = GenerationConfig.from_pretrained(out)
    assert (generation.num_beams, generation.min_new_tokens, generation.early_stopping) == (
        5,
        1,
        True,
    )
    assert generation.bad_words_ids == [[1]]


@pytest.mark.parametrize(
    "options",
    [
        {"share_all_embeddings": True},
        {"share_decoder_input_output_embed": True},
        {},
        {"encoder_learned_pos": True, "decoder_learned_pos": True, "no_scale_embedding": True},
        {"no_token_positional_embeddings": True, "activation_fn": "gelu"},
    ],
    ids=str,
)
def test_marian_computes_the_same_scores(options: dict[str, Any], tmp_path: Path) -> None:
    """Every way to share embeddings, and every kind of position."""

    model = toy.model("transformer", **options).eval()
    symbols = toy.dictionary()
    words = translation.Vocabulary("en", "de", symbols, symbols)
    hugging_face.write(model, words, tmp_path / "hf", None)
    marian = MarianMTModel.from_pretrained(tmp_path / "hf").eval()
    source = torch.tensor([[5, 6, 7, 8, 2], [9, 5, 2, 1, 1]])  # fairseq takes padding on this side
    previous = torch.tensor([[2, 9, 8], [2, 5, 7]])
    logits, _ = model(source, source.ne(1).sum(1), previous)
    found = marian(
        input_ids=source, attention_mask=source.ne(1).long(), decoder_input_ids=previous
    ).logits
    torch.testing.assert_close(found, logits, rtol=0, atol=1e-5)


def test_marian_tokeniser(tmp_path: Path) -> None:
    """With a sentencepiece model whose pieces are the dictionary's words."""
    import sentencepiece

    text = tmp_path / "text"
    text.write_text("".join(f"{' '.join(sentence)}\n" for sentence in SENTENCES * 5))
    sentencepiece.SentencePieceTrainer.train(
        input=str(text), model_prefix=str(tmp_path / "spm"), vocab_size=18, minloglevel=2
    )
    pieces = sentencepiece.SentencePieceProcessor(str(tmp_path / "spm.model"))
    symbols = toy.dictionary(0)
    for i in range(3, pieces.get_piece_size()):
        symbols.add_symbol(pieces.id_to_piece(i))
    words = translation.Vocabulary("en", "de", symbols, symbols)
    model = toy.model(
        "transformer",
        Namespace(source_dictionary=symbols, target_dictionary=symbols),
        share_all_embeddings=True,
    )

    hugging_face.write(model, words, tmp_path / "hf", tmp_path / "spm.model")
    tokeniser = MarianTokenizer.from_pretrained(tmp_path / "hf")
    sentence = " ".join(SENTENCES[0])
    expected = [symbols.index(p) for p in pieces.encode(sentence, out_type=str)] + [symbols.eos()]
    assert tokeniser(sentence)["input_ids"] == expected
    assert tokeniser.decode(expected, skip_special_tokens=True) == sentence


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer", {"encoder_normalize_before": True, "decoder_normalize_before": True}),
        ("transformer", {"encoder_normalize_before": True, "layernorm_embedding": True}),
        ("transformer", {"encoder_learned_pos": True, "no_scale_embedding": True}),
        ("transformer", {"no_token_positional_embeddings": True}),
        ("transformer", {"encoder_attention_heads": 2, "activation_fn": "gelu"}),
        ("transformer_collab", {"key_dim": 4}),
        ("transformer_collab", {"key_dim": 11}),
        ("transformer_collab", {"key_dim": 7, "attention_bias": "content"}),
        ("transformer_collab", {"key_dim": 7, "value_heads": 2, "attention_bias": "content"}),
        ("transformer_collab", {"key_dim": 3, "value_heads_in_cross": "1,4", "value_heads": 2}),
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
        if name.endswith(("bias", "content_bias")):
            torch.nn.init.normal_(parameter)
    symbols = toy.dictionary()
    words = translation.Vocabulary("en", "de", symbols, symbols)
    ctranslate2_format.write(opened(model), words, tmp_path / "ct2")
    engine = ctranslate2.Translator(str(tmp_path / "ct2"), intra_threads=1)
    source, target = ["w1", "w2", "w3", "w1"], ["w7", "w8", "w5"]
    (found,) = engine.score_batch([source], [target])
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
        ("transformer_grouped_query", {"key_value_heads": 2, "key_value_heads_in_cross": "1"}),
        ("transformer_collab", {"key_dim": 6, "value_heads": 1}),
        ("transformer_latent", {"latent_dim": 6}),
    ],
)
def test_ctranslate2_continues_from_shared_keys_and_values(
    arch: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Word for word, from its own cache; greedily, as engines end their beam searches otherwise."""
    torch.manual_seed(1)
    model = toy.model(arch, **options).eval()
    for parameter in model.parameters():
        if parameter.ndim > 1:
            parameter.data.mul_(2.5)  # so that words differ in probability
    symbols = toy.dictionary()
    words = translation.Vocabulary("en", "de", symbols, symbols)
    ctranslate2_format.write(opened(model), words, tmp_path / "ct2")
    engine = ctranslate2.Translator(str(tmp_path / "ct2"), intra_threads=1)
    sources = torch.randint(20, (20, 6)).tolist()
    search = SequenceGenerator([model], symbols, beam_size=1, max_len_a=0, max_len_b=10)
    tokens = torch.tensor([[*(4 + word for word in source), symbols.eos()] for source in sources])
    batch = {"src_tokens": tokens, "src_lengths": torch.full((20,), 7)}
    hypotheses = search.generate([model], {"net_input": batch})
    expected = [[symbols[i] for i in best[0]["tokens"][:-1]] for best in hypotheses]
    found = engine.translate_batch(
        [[f"w{word}" for word in source] for source in sources],
        beam_size=1,
        max_decoding_length=10,
        suppress_sequences=[["<blank>"]],
    )
    assert [result.hypotheses[0] for result in found] == expected
    assert len({*map(tuple, expected)}) > 3


def test_ctranslate2_has_one_number_of_heads(tmp_path: Path) -> None:

    model = toy.model("transformer_headsize_n", heads_in_encoder="4,2")
    words = translation.Vocabulary("en", "de", toy.dictionary(), toy.dictionary())
    with pytest.raises(
        UserError, match=r"c\.pt: no exact export: encoder\.layers\.1\.self_attn has"
    ):
        ctranslate2_format.write(opened(model), words, tmp_path / "ct2")


def test_safetensors_hold_weights_and_description(tmp_path: Path) -> None:
    out = tmp_path / "model.safetensors"
    run(CHECKPOINT, "--format=safetensors", "--out", out)
    weights = checkpoints.read(CHECKPOINT)["model"]
    with safe_open(out, "pt") as file:
        description = json.loads(file.metadata()["fairseq_collab"])
        found = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 (no mapping)
    for name, first in description["tied"].items():
        found[name] = found[first]
    assert found.keys() == {name for name in weights if not name.endswith("._float_tensor")}
    assert all(torch.equal(found[name], weights[name]) for name in found)
    assert description["tied"] == {
        "decoder.embed_tokens.weight": "encoder.embed_tokens.weight",
        "decoder.output_projection.weight": "encoder.embed_tokens.weight",
    }
    assert description["architecture"] == "transformer_collab"
    assert description["model"]["key_dim"] == 8
    assert description["attention"]["decoder.layers.0.encoder_attn"]["heads"] == 4
    signature = weights["encoder.dictionary_signature"]
    assert description["dictionaries"]["encoder"] == {
        "symbols": 16,
        "sha256_start": f"{int(signature[2]) & (2**64 - 1):016x}",
    }
    again = tmp_path / "again.safetensors"
    run(CHECKPOINT, "--format=safetensors", "--out", again)
    assert again.read_bytes() == out.read_bytes()


# ---- refusals -----------------------------------------------------------------------------------


def test_nothing_is_replaced_without_force(tmp_path: Path) -> None:
    out = tmp_path / "model.pt"
    out.write_text("mine")
    message = refused(CHECKPOINT, "--format=fairseq", "--out", out)
    assert message == f"{out}: exists already; give another --out, or replace it with --force"
    assert out.read_text() == "mine"
    run(CHECKPOINT, "--format=fairseq", "--out", out, "--force")
    assert out.read_bytes()[:2] == b"PK"


def test_a_folder_is_replaced_as_a_whole(tmp_path: Path) -> None:
    out = tmp_path / "ct2"
    out.mkdir()
    (out / "old").write_text("old")
    assert "exists already" in refused(CHECKPOINT, "--format=ct2", "--out", out, *VOCABULARY)
    run(CHECKPOINT, "--format=ct2", "--out", out, "--force", *VOCABULARY)
    assert not (out / "old").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["ct2"]


@pytest.mark.parametrize("name", ["safetensors", "ct2", "hf"])
def test_a_full_disk_is_told_in_a_line(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    out = tmp_path / "out"
    vocabulary = [] if name == "safetensors" else VOCABULARY
    message = refused(CHECKPOINT, f"--format={name}", "--out", out, *vocabulary)
    assert message == f"{out}: cannot be written: No space left on device"
    assert list(tmp_path.iterdir()) == []


def test_the_folder_of_the_result_must_exist(tmp_path: Path) -> None:
    message = refused(CHECKPOINT, "--format=fairseq", "--out", tmp_path / "no" / "model.pt")
    todo = "make it, or give another --out"
    assert message == f"{tmp_path / 'no'}: there is no such folder; {todo}"


@pytest.mark.parametrize("name", ["lightconv", "transformer_of_somebody"])
def test_unknown_model_types(name: str, tmp_path: Path) -> None:
    path = edited(tmp_path / "c.pt", lambda state: state["cfg"]["model"].update(_name=name))
    message = refused(path, "--format=safetensors", "--out", tmp_path / "out")
    assert message.startswith(f"{path}: unknown model type '{name}'; give a transformer")


def test_other_heads_than_the_signature_says(tmp_path: Path) -> None:
    def edit(state: dict[str, Any]) -> None:
        state["cfg"]["model"]["encoder_attention_heads"] = 2

    path = edited(tmp_path / "c.pt", edit)
    message = refused(path, "--format=fairseq", "--out", tmp_path / "out.pt")
    assert message.startswith(f"{path}: the checkpoint does not fit this model: encoder.layers.0")
    assert "heads is 4 in it, 2 here" in message


def test_dictionaries_must_be_the_models(tmp_path: Path) -> None:
    out = tmp_path / "out"
    command = [CHECKPOINT, "--format=ct2", "--out", out]
    message = refused(*command, "--data", tmp_path / "no")
    assert message == (
        f"{tmp_path / 'no'}: there is no such data folder; name the folder that {CHECKPOINT} was "
        "trained on with --data"
    )
    message = refused(*command, "--data", STORED)
    assert message.endswith("do not tell the languages; give --source-lang and --target-lang")
    data = tmp_path / "data"
    data.mkdir()
    command += ["--data", data, *LANGUAGES]
    assert refused(*command).startswith(f"{data / 'dict.en.txt'}: there is no such dictionary")
    for language in ("en", "de"):
        shutil.copy(STORED / f"dict.{language}.txt", data)
    lines = (data / "dict.de.txt").read_text().splitlines(keepends=True)
    (data / "dict.de.txt").write_text("".join([lines[1], lines[0], *lines[2:]]))
    assert "it has other symbols than the model's, or another order" in refused(*command)
    (data / "dict.de.txt").write_text("".join(lines[:-1]))
    assert "it has 15 symbols, the model 16" in refused(*command)
    assert not out.exists()


def test_other_tasks_have_no_vocabulary() -> None:
    state = {"cfg": OmegaConf.create({"model": {}, "task": {"_name": "denoising"}})}
    trained = Trained(Path("c.pt"), state, None, None)
    with pytest.raises(UserError, match=r"c\.pt: no exact export: its task is 'denoising'"):
        translation.vocabulary(trained, Namespace(data=STORED))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cross_self_attention": True, "no_cross_attention": True}, "no --cross-self-attention"),
        ({"encoder_embed_dim": 8, "encoder_attention_heads": 2}, "here they are 8 and 16"),
        ({"adaptive_softmax_cutoff": "8"}, "knows no --adaptive-softmax-cutoff"),
        ({"decoder_output_dim": 12}, "knows no --decoder-input-dim, no --decoder-output-dim"),
        ({"activation_fn": "relu_squared"}, "knows no --activation-fn relu_squared"),
        ({"encoder_normalize_before": True}, "knows no --encoder-normalize-before"),
        ({"layernorm_embedding": True}, "knows no --layernorm-embedding"),
    ],
)
def test_what_marian_cannot_compute(options: dict[str, Any], message: str) -> None:

    model = toy.model("transformer", **options)
    with refusing(message, "c.pt: no exact export: Marian "):
        translation.check(opened(model), "Marian", hugging_face.ACTIVATIONS, True)


def test_language_models_do_not_translate() -> None:
    with pytest.raises(UserError, match="a TransformerLanguageModel does not translate"):
        translation.check(opened(language_model("transformer_lm")), "Marian", ())


@pytest.mark.parametrize("name", ["fairseq", "safetensors"])
@pytest.mark.parametrize("option", ["--data", "--source-lang", "--target-lang"])
def test_dictionaries_go_with_formats_that_read_them(
    name: str, option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with wrong_usage(capsys, f"{option} needs --format ct2 or hf"):
        run(CHECKPOINT, f"--format={name}", "--out", tmp_path / "out", option, STORED)


def test_sentencepiece_goes_with_hugging_face(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [CHECKPOINT, "--out", tmp_path / "out", "--sentencepiece", tmp_path / "no.model"]
    with wrong_usage(capsys, "--sentencepiece needs --format hf"):
        run(*arguments, "--format=ct2")
    assert refused(*arguments, "--format=hf") == f"{tmp_path / 'no.model'}: there is no such file"
