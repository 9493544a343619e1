"""A model for CTranslate2 (https://github.com/OpenNMT/CTranslate2).

CTranslate2's own converter cannot read checkpoints of fairseq 0.10 or newer.  This module calls its
functions that fill a specification, for a model with plain projections.

Heads in CTranslate2 may have any size, so every key width can be exported.  All heads of a stack
have the size that the largest one needs (K with shared keys; zeros fill up the values), and their
products cost accordingly.  CTranslate2 also shares the keys and values that heads share
(``num_heads_kv``).
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from ctranslate2 import Translator
from ctranslate2.converters.fairseq import set_transformer_decoder, set_transformer_encoder
from ctranslate2.specs import (
    TransformerDecoderSpec,
    TransformerEncoderSpec,
    TransformerSpec,
    common_spec,
)
from ctranslate2.specs.attention_spec import MultiHeadAttentionSpec
from fairseq.data import Dictionary
from torch import Tensor, nn

from collab_lab.export.check import BATCH, BatchAttention
from collab_lab.export.engine_support import (
    attending_heads,
    check_all_read,
    check_engine,
    longest_output,
    most_source_tokens,
    most_tokens,
)
from collab_lab.export.plain import filled_block, inexact
from collab_lab.export.standard_weights import (
    NotExactError,
    has_shared_kv,
    key_value_heads,
    plain_weights,
    smallest_size,
)
from collab_lab.export.vocabulary import Vocabulary, directions, vocabulary
from collab_lab.metrics.cost import UNROUNDED, cached_bytes
from collab_lab.metrics.generate import BEAM
from collab_lab.metrics.length_limit import LENGTH_LIMIT
from collab_lab.trained.attentions import Attention, attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.feed_forward import feed_forwards
from fairseq_collab.attention import HeadAttention

ACTIVATIONS = {
    "relu": common_spec.Activation.RELU,
    "gelu": common_spec.Activation.GELU,
    "gelu_accurate": common_spec.Activation.GELUTanh,
    "gelu_fast": common_spec.Activation.GELUTanh,
    "swish": common_spec.Activation.SWISH,
    "tanh": common_spec.Activation.Tanh,
}


def check(trained: Trained) -> None:
    """Raise UserError for a model that CTranslate2 cannot compute."""
    check_engine(trained, "CTranslate2", ACTIVATIONS)


def export(trained: Trained, folder: Path) -> None:
    """Write a folder for ``ctranslate2.Translator``, and print its bytes of the KV cache."""
    check(trained)
    words = vocabulary(directions(trained)[0])
    write(trained, words, folder)
    for token, (ours, in_ct2) in cache_bytes(trained).items():
        line = f"KV cache per {token} token (16-bit numbers): {ours:,} bytes, in CTranslate2"
        print(f"{line} {in_ct2:,}")
    how = "tokens without </s>, except that an empty line stays empty"
    begins_with_tag = words.target_tag or trained.ignored_prefix
    like = "nearly as" if begins_with_tag else "as"
    print(f"translate {like} fairseq does, {how}: {call(trained, words)}")
    if words.target_tag or words.source_tag:
        direction = directions(trained)[0].cfg.task
        begins = "; a translation begins with that of its target_prefix" if words.target_tag else ""
        print(
            f"here from {direction.source_lang} to {direction.target_lang}: other languages have "
            f"their own symbols{begins}"
        )
    if begins_with_tag:
        print(
            "fairseq's score of a translation counts the probability of its first symbol, and "
            "CTranslate2's does not if target_prefix gives it: where two lengths are close, they "
            "may choose differently"
        )
    print(
        "attention (return_attention, replace_unknowns): with max_batch_size=1; in a larger batch, "
        "CTranslate2's beam search on a CPU gives first words that of another sentence"
    )


def write(trained: Trained, words: Vocabulary, folder: Path) -> None:
    """Write the folder of a model that :func:`check` accepts."""
    spec = specification(trained, words)
    spec.validate()
    spec.optimize()
    spec.save(str(folder))


def translate(
    model: Any, words: Vocabulary, folder: Path, sources: Sequence[Tensor]
) -> list[list[int]]:
    """Translate with the exported folder; sources end in ``</s>``, translations do not."""
    engine, indices = Translator(str(folder)), words.target.indices
    tokens = [_words(words.source, source[:-1].tolist()) for source in sources]
    results = []
    for start in range(0, len(tokens), BATCH):
        batch = tokens[start : start + BATCH]
        prefix = [[words.target_tag]] * len(batch) if words.target_tag else None
        options = search_options(model, max(map(len, batch)))
        results += engine.translate_batch(batch, target_prefix=prefix, **options)
    return [[indices[word] for word in result.hypotheses[0]] for result in results]


def batch_attention(folder: Path, words: Vocabulary) -> BatchAttention:
    """A function that computes the exported model's attention, the last layer's mean over heads.

    It decodes greedily, because CTranslate2's beam search returns the attention of first words from
    other sentences of the batch (4.8.5, on a CPU: it gathers the first step too early).
    """
    engine = Translator(str(folder))

    def mean(tokens: Tensor, previous: Tensor) -> Tensor:
        results = engine.translate_batch(
            [_words(words.source, row[:-1]) for row in _rows(tokens, words.source)],
            target_prefix=[_words(words.target, row[1:]) for row in _rows(previous, words.target)],
            beam_size=1,
            max_input_length=0,
            max_decoding_length=max(1, previous.size(1) - 1),
            return_attention=True,
        )
        weights = torch.zeros(*previous.shape, tokens.size(1))
        for of_sentence, result in zip(weights, results, strict=True):
            for of_word, found in zip(of_sentence, result.attention[0], strict=False):
                of_word[: len(found)] = torch.tensor(found)
        return weights

    return mean


def _rows(tokens: Tensor, words: Dictionary) -> Iterator[list[int]]:
    """The sequences of a batch, without padding."""
    return (row[row.ne(words.pad())].tolist() for row in tokens)


def _words(words: Dictionary, indices: Sequence[int]) -> list[str]:
    return [words.symbols[index] for index in indices]


def specification(trained: Trained, words: Vocabulary) -> TransformerSpec:
    """CTranslate2's specification with all weights of the model."""
    check_all_read(trained.model, "CTranslate2")
    model = copy.deepcopy(trained.model).requires_grad_(False)
    for block in feed_forwards(model):
        for name, weight in filled_block(block, max(1, block.width)).items():
            model.get_parameter(name).data = weight  # CTranslate2 has no map of width 0
    encoder = _stack(TransformerEncoderSpec, trained, model.encoder, "encoder")
    # Attention is the mean over the first heads of the last layer: heads of zeros come after.
    kind = partial(TransformerDecoderSpec, alignment_heads=attending_heads(trained.model))
    decoder = _stack(kind, trained, model.decoder, "decoder")
    set_transformer_encoder(encoder, model.encoder)
    set_transformer_decoder(decoder, model.decoder)
    spec = TransformerSpec(encoder, decoder)
    # Symbols keep their names (CTranslate2's converter calls padding <blank>): each token of a text
    # has fairseq's index.
    spec.register_source_vocabulary(list(words.source.symbols))
    spec.register_target_vocabulary(list(words.target.symbols))
    # fairseq ends a source with </s>, and starts a target with it.
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = words.target.eos_word
    spec.config.unk_token = words.target.unk_word
    return spec


def search_options(model: Any, source: int) -> dict[str, Any]:
    """Arguments of ``translate_batch`` for the same search as in a run.

    No source is cut off: CTranslate2 raises an error for a source longer than the positions.

    Args:
        source: tokens of the longest source of the batch, without ``</s>``.
    """
    return {
        "beam_size": BEAM,
        "max_input_length": 0,
        "max_decoding_length": longest_output(model, source + 1),
        "suppress_sequences": [[model.decoder.dictionary.pad_word]],
    }


def call(trained: Trained, words: Vocabulary) -> str:
    """A line of Python for the user: ``translate_batch`` with :func:`search_options`.

    It cuts sources as the training did with ``--truncate-source``.
    """
    model = trained.model
    per_token, added = (
        LENGTH_LIMIT["max_len_a"],
        1 if words.source_tag is None else 2,
    )  # </s> and a tag
    by_source = (
        f"{per_token} * max(map(len, tokens)) + {per_token * added + LENGTH_LIMIT['max_len_b']}"
    )
    texts = {name: repr(value) for name, value in search_options(model, 0).items()}
    texts["max_decoding_length"] = f"min({by_source}, {most_tokens(model)})"
    texts["max_input_length"] = str(most_source_tokens(trained))
    sources = "tokens"
    if words.source_tag is not None:
        sources = f"[[{words.source_tag!r}, *line] for line in tokens]"
    if words.target_tag is not None:
        texts["target_prefix"] = f"[[{words.target_tag!r}]] * len(tokens)"
    return f"translate_batch({sources}, {', '.join(f'{name}={texts[name]}' for name in texts)})"


def _stack(kind: Any, trained: Trained, stack: Any, side: str) -> Any:
    """The empty specification of ``stack``, whose attentions are replaced by plain projections."""
    layers, heads, size = layout(trained, side)
    for attention in layers:
        if isinstance(attention.module, HeadAttention):
            name = attention.name.rpartition(".")[2]
            setattr(stack.layers[attention.layer], name, projections(attention.module, size, heads))
    spec = kind(
        len(stack.layers),
        heads,
        head_dim=size,
        pre_norm=getattr(stack.cfg, side).normalize_before,
        activation=ACTIVATIONS[str(stack.cfg.activation_fn)],
        layernorm_embedding=stack.layernorm_embedding is not None,
        no_final_norm=stack.layer_norm is None,
    )
    for attention in layers:
        if isinstance(attention.module, HeadAttention) and has_shared_kv(attention.module):
            groups, is_cross = key_value_heads(attention.module), attention.type == "cross"
            shared = MultiHeadAttentionSpec(not is_cross, num_heads_kv=groups, head_dim=size)
            name = "attention" if is_cross else "self_attention"
            setattr(spec.layer[attention.layer], name, shared)
    return spec


def layout(trained: Trained, side: str) -> tuple[list[Attention], int, int]:
    """The attentions of a stack, and the number and size of their heads in CTranslate2."""
    layers = [a for a in attentions(trained.model) if a.name.startswith(f"{side}.")]
    heads = max(1, *(a.module.num_heads for a in layers))
    unequal = [
        f"{a} has {a.module.num_heads}"
        for a in layers
        if a.module.num_heads not in (0, heads)
        and isinstance(a.module, HeadAttention)
        and has_shared_kv(a.module)
    ]
    if unequal:
        problem = f"CTranslate2 needs one number of heads in the whole {side}, here {heads}, but "
        problem += f"these attentions with shared keys and values differ: {', '.join(unequal)}"
        raise inexact(trained, problem)
    return layers, heads, max(head_size(trained, a) for a in layers)


def cache_bytes(trained: Trained) -> dict[str, tuple[int, int]]:
    """Bytes of the KV cache per target token and per source token, of the model and in CTranslate2.

    They are summed over decoder layers and count 16-bit numbers.  CTranslate2 caches keys and
    values of one size for all heads of the decoder; heads share them only if they do in the model.
    """
    layers, heads, size = layout(trained, "decoder")
    totals = {"target": (0, 0), "source": (0, 0)}
    for attention in layers:
        is_shared = isinstance(attention.module, HeadAttention) and has_shared_kv(attention.module)
        groups = key_value_heads(attention.module) if is_shared else heads
        token = "source" if attention.type == "cross" else "target"
        ours, in_ct2 = totals[token]
        ours += sum(cached_bytes(attention.module))
        totals[token] = ours, in_ct2 + 2 * UNROUNDED // 8 * groups * size
    return totals


def head_size(trained: Trained, attention: Attention) -> int:
    """The smallest exact head size; raises UserError if there is none."""
    if not isinstance(attention.module, HeadAttention):
        return attention.module.head_dim
    try:
        return smallest_size(attention.module)
    except NotExactError as error:
        raise inexact(trained, f"{attention.name}: {error}") from error


def projections(attention: HeadAttention, size: int, heads: int) -> nn.Module:
    """The projections of fairseq's attention that CTranslate2 reads, for ``heads`` of ``size``."""
    weights = plain_weights(attention, size, heads, may_share=True)
    module = nn.Module()
    for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
        weight, bias = weights[f"{name}.weight"].contiguous(), weights[f"{name}.bias"]
        setattr(module, name, SimpleNamespace(weight=weight, bias=bias))
    return module
