"""A model for Hugging Face's ``MarianMTModel``.

Marian's model is fairseq's post-norm transformer with other positions: they have other wavelengths
and count from 0 (in fairseq from ``padding_idx + 1``).  transformers does not save the table of
positions, but loads one if the file has it, so fairseq's table is written to the file.
``save_pretrained`` on the loaded model omits the table again unless :data:`SAVE_ALL` runs first;
``--check`` tests this.
"""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional
from transformers import GenerationConfig, MarianConfig, MarianMTModel

from collab_common.errors import UserError
from collab_lab.export.check import BatchAttention, batches
from collab_lab.export.engine_support import (
    check_all_read,
    check_engine,
    longest_output,
    most_tokens,
)
from collab_lab.export.plain import inexact, plain
from collab_lab.export.vocabulary import SUBWORDS, Vocabulary, vocabulary
from collab_lab.metrics.generate import BEAM
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.trained.checkpoint import Trained
from fairseq_collab.models.layers import is_copy

#: fairseq's names of activations, and transformers'.
ACTIVATIONS = {
    "relu": "relu",
    "gelu": "gelu",
    "gelu_accurate": "gelu_new",
    "gelu_fast": "gelu_new",
    "swish": "silu",
    "tanh": "tanh",
    "linear": "linear",
}

#: What :func:`save_all` does, as a line: tried with transformers 4.40, 4.57 and 5.23.
SAVE_ALL = "model._keys_to_ignore_on_save = set()"


def export(trained: Trained, folder: Path) -> None:
    """Write a folder for ``from_pretrained`` of ``MarianMTModel`` and ``AutoTokenizer``."""
    stock = plain(trained)
    check_engine(stock, "MarianMTModel", ACTIVATIONS, post_norm_only=True)
    words = vocabulary(stock)
    if not words.source_lang:
        raise inexact(trained, "MarianMTModel has no symbols of languages", "give --format ct2")
    write(stock.model, words, folder)
    print(f"translate as fairseq does: {call(stock.model)}")
    print(
        f"before save_pretrained, say after fine-tuning: {SAVE_ALL}; without it, transformers "
        "leaves fairseq's positions out and loads Marian's in their place: other translations"
    )
    if words.subwords is None:
        print(
            f"no tokeniser: the data folder has no {SUBWORDS}; give the model indices of subwords"
        )
    else:
        print("texts that begin with >>...<<: MarianTokenizer takes that for a language, as <unk>")


def write(model: Any, words: Vocabulary, folder: Path) -> None:
    """Write the folder of a model of fairseq's own that :func:`.check_engine` accepts.

    The tokeniser needs ``words.subwords``; without it, only the vocabulary is written.
    """
    check_all_read(model, "MarianMTModel")
    config = configuration(model, words)
    config.save_pretrained(folder)
    generation(model, words).save_pretrained(folder)
    content = save(weights(model, config), {"format": "pt"})
    (folder / "model.safetensors").write_bytes(content)
    write_vocabulary(words, folder, config, int(model.max_positions()[0]))


def call(model: Any) -> str:
    """A line of Python for the user: ``generate`` with the limit of :func:`.longest_output`."""
    per_token, constant = LENGTH_LIMIT["max_len_a"], LENGTH_LIMIT["max_len_b"] + 2
    limit = f'{per_token} * inputs["input_ids"].shape[1] + {constant}'
    return f"generate(**inputs, max_length=min({limit}, {longest_sequence(model)}))"


def translate(
    original: Any, words: Vocabulary, folder: Path, sources: Sequence[Tensor]
) -> list[list[int]]:
    """Translate with the exported folder; sources end in ``</s>``, translations do not."""
    model, pad, eos = MarianMTModel.from_pretrained(folder), words.source.pad(), words.target.eos()
    found = []
    for tokens in batches(sources, pad):
        inputs = {"input_ids": tokens, "attention_mask": tokens.ne(pad).long()}
        longest = longest_output(original, tokens.size(1)) + 2
        outputs = model.generate(**inputs, num_beams=BEAM, max_length=longest)
        for _, *output in outputs.tolist():
            found.append(output[: output.index(eos)])
    return found


def batch_attention(folder: Path, words: Vocabulary) -> BatchAttention:
    """A function that computes the exported model's attention, the last layer's mean over heads."""
    model = MarianMTModel.from_pretrained(folder, attn_implementation="eager").eval()

    def mean(tokens: Tensor, previous: Tensor) -> Tensor:
        inputs = {"input_ids": tokens, "attention_mask": tokens.ne(words.source.pad()).long()}
        output = model(**inputs, decoder_input_ids=previous, output_attentions=True)
        return output.cross_attentions[-1].mean(1)

    return mean


def survives_saving(folder: Path) -> bool:
    """Whether the model is unchanged after it is loaded, saved by :func:`save_all`, and loaded."""
    model = MarianMTModel.from_pretrained(folder)
    with tempfile.TemporaryDirectory() as copy:
        save_all(model, copy)
        again = MarianMTModel.from_pretrained(copy)
    pairs = zip(weights_in(model), weights_in(again), strict=True)
    return all(torch.equal(a, b) for a, b in pairs) and (
        model.generation_config.to_diff_dict() == again.generation_config.to_diff_dict()
    )


def save_all(model: Any, folder: str) -> None:
    """Call ``save_pretrained`` so that it includes the table of positions."""
    model._keys_to_ignore_on_save = set()
    try:
        model.save_pretrained(folder)
    except SafetensorError as error:  # a full disk
        raise UserError(str(error), folder, "free some space, or set TMPDIR") from error


def weights_in(model: Any) -> list[Tensor]:
    """All tensors of a model by name; the NaN after the last learned position becomes 0."""
    state = model.state_dict()
    return [state[name].nan_to_num() for name in sorted(state)]


def configuration(model: Any, words: Vocabulary) -> MarianConfig:
    """The options of ``MarianMTModel``."""
    cfg = model.encoder.cfg
    shared = model.encoder.embed_tokens.weight is model.decoder.embed_tokens.weight
    tied = model.decoder.output_projection.weight is model.decoder.embed_tokens.weight
    return MarianConfig(
        architectures=["MarianMTModel"],
        vocab_size=len(words.source),
        decoder_vocab_size=len(words.target),
        share_encoder_decoder_embeddings=shared,
        tie_word_embeddings=tied,
        d_model=cfg.encoder.embed_dim,
        encoder_layers=len(model.encoder.layers),
        encoder_attention_heads=cfg.encoder.attention_heads,
        encoder_ffn_dim=cfg.encoder.ffn_embed_dim,
        decoder_layers=len(model.decoder.layers),
        decoder_attention_heads=cfg.decoder.attention_heads,
        decoder_ffn_dim=cfg.decoder.ffn_embed_dim,
        activation_function=ACTIVATIONS[str(cfg.activation_fn)],
        dropout=cfg.dropout,
        attention_dropout=cfg.attention_dropout,
        activation_dropout=cfg.activation_dropout or cfg.relu_dropout,  # as fairseq's layers do
        encoder_layerdrop=cfg.encoder.layerdrop,
        decoder_layerdrop=cfg.decoder.layerdrop,
        scale_embedding=not cfg.no_scale_embedding,
        max_position_embeddings=max(*model.max_positions(), longest_sequence(model)),
        **special_symbols(words),
    )


def special_symbols(words: Vocabulary) -> dict[str, Any]:
    """The special symbols under transformers' names."""
    end_tokens = ("eos_token_id", "forced_eos_token_id", "decoder_start_token_id")
    return {
        "pad_token_id": words.target.pad(),
        "bos_token_id": words.target.bos(),
        **dict.fromkeys(end_tokens, words.target.eos()),
    }


def longest_sequence(model: Any) -> int:
    """The longest output that the model has positions for, with the first token and ``</s>``.

    fairseq counts neither of these two.
    """
    return most_tokens(model) + 2


def generation(model: Any, words: Vocabulary) -> GenerationConfig:
    """The search of ``fairseq-generate`` with beam 5.

    The search of a sentence ends with its fifth hypothesis.  Scores are means over tokens.  Padding
    and empty translations are excluded.  This configuration cannot hold a limit that depends on the
    source, so the model's positions are the limit: see :func:`call`.
    """
    return GenerationConfig(
        num_beams=5,
        length_penalty=1.0,
        early_stopping=True,
        min_new_tokens=1,
        max_length=longest_sequence(model),
        bad_words_ids=[[words.target.pad()]],
        **special_symbols(words),
    )


def weights(model: Any, config: MarianConfig) -> dict[str, Tensor]:
    """Marian's weights by name; tied weights occur once."""
    tensors: dict[str, Tensor] = {}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
        for name, weight in stack.layers.state_dict().items():
            if not is_copy(name):
                tensors[f"model.{side}.layers.{name}"] = weight
        positions = position_table(stack.embed_positions, config.max_position_embeddings)
        tensors[f"model.{side}.embed_positions.weight"] = positions
        name = "shared" if config.share_encoder_decoder_embeddings else f"{side}.embed_tokens"
        tensors[f"model.{name}.weight"] = stack.embed_tokens.weight
    if not config.tie_word_embeddings:
        tensors["lm_head.weight"] = model.decoder.output_projection.weight
    tensors["final_logits_bias"] = torch.zeros(1, model.decoder.output_projection.out_features)
    return {name: weight.detach().contiguous() for name, weight in tensors.items()}


def position_table(module: Any, positions: int) -> Tensor:
    """The embeddings of positions, counted from 0: ``(positions, d)``.

    fairseq counts from ``padding_idx + 1``.  A learned table has NaN after the last position.
    """
    first = module.padding_idx + 1
    if isinstance(module, nn.Embedding):
        table = module.weight.detach()[first : first + positions]
        return functional.pad(table, (0, 0, 0, positions - len(table)), value=math.nan)
    table = module.get_embedding(first + positions, module.embedding_dim, module.padding_idx)
    return table[first:]


def write_vocabulary(
    words: Vocabulary, folder: Path, config: MarianConfig, longest_source: int
) -> None:
    """``vocab.json``, from piece to index, and the other files of ``MarianTokenizer``."""
    shared = config.share_encoder_decoder_embeddings
    files: dict[str, Any] = {"vocab.json": words.source.indices}
    if not shared:
        files["target_vocab.json"] = words.target.indices
    if words.subwords is not None:
        files["tokenizer_config.json"] = {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": words.source_lang,
            "target_lang": words.target_lang,
            "separate_vocabs": not shared,
            "model_max_length": longest_source,
            "unk_token": words.source.unk_word,
            "eos_token": words.source.eos_word,
            "pad_token": words.source.pad_word,
            "split_special_tokens": True,  # in a text, they are text, as in fairseq
            # transformers 4 otherwise joins a mark to the word before it
            "clean_up_tokenization_spaces": False,
        }
        for side in ("source", "target"):
            shutil.copyfile(words.subwords, folder / f"{side}.spm")
    for name, content in files.items():
        text = json.dumps(content, ensure_ascii=False, indent=1) + "\n"
        (folder / name).write_text(text, encoding="utf-8")
