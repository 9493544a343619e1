"""Reject weights that would load but mean something else.

Tensor shapes do not reveal head counts, key widths, shared embeddings and activations, and a
dictionary of equal size may hold other words; fairseq loads these checkpoints without a warning.
So every attention and every model keeps a persistent integer buffer ``signature``, every encoder
and decoder a ``dictionary_signature``, and :func:`check_weights` compares them before any weight is
copied.
"""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.utils import get_available_activation_fns
from torch import Tensor, nn

from collab_common import AttentionType
from collab_common.errors import UserError
from fairseq_collab.attention import HeadAttention
from fairseq_collab.attention.cache import IncrementalState, beam_history, start_beam_history
from fairseq_collab.attention.signature import Signature, choice_field

DICTIONARY_VERSION = 1
#: End of the name of a buffer without content, which fairseq saves for sinusoidal positions.
SINES = "embed_positions._float_tensor"


@dataclass(frozen=True)
class ModelSignature(Signature):
    """Options outside the attentions that change what equal names and shapes of weights mean."""

    kind = 0
    sharing: str = choice_field("what shares embeddings", ("nothing", "the decoder", "all"))
    activation: str = choice_field("activation", tuple(get_available_activation_fns()))
    scales: str = choice_field("scaling of embeddings", ("on", "off"))
    pre_norm: str = choice_field("normalisation before the decoder's blocks", ("off", "on"))

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> ModelSignature:
        """Return the signature of flat options."""
        within = "the decoder" if options["share_decoder_input_output_embed"] else "nothing"
        return cls(
            "all" if options.get("share_all_embeddings") else within,
            str(options["activation_fn"]),
            "off" if options["no_scale_embedding"] else "on",
            "on" if options["decoder_normalize_before"] else "off",
        )


def register_dictionary_signature(module: nn.Module, dictionary: Any) -> None:
    """Give ``module`` a persistent buffer ``(version, number of symbols, hash of the symbols)``."""
    text = "\n".join(dictionary[i] for i in range(len(dictionary)))
    digest = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big", signed=True)
    fields = torch.tensor([DICTIONARY_VERSION, len(dictionary), digest], dtype=torch.int64)
    module.register_buffer("dictionary_signature", fields)


def check_weights(model: Any, state: Mapping[str, Tensor], prefix: str) -> None:
    """Compare the names, signatures and shapes in ``state`` with those of ``model``.

    Args:
        prefix: prefix of the model's names in ``state``.

    Raises:
        UserError: they differ; the error names all fields that do, with both values. Or the weights
            are those of stock fairseq.
    """
    if not any(name.endswith("signature") for name in state):
        raise UserError(
            "the checkpoint is a model of stock fairseq: it contains no signatures of heads",
            todo="convert it first with fairseq-collab reparametrize, and give the result",
        )
    problems = list(_differences(model, state, prefix))
    if problems:
        raise UserError(
            f"the checkpoint does not fit this model: {'; '.join(_by_layer(problems))}",
            todo="give the options and the data folder that it was trained with",
        )


def _differences(model: Any, state: Mapping[str, Tensor], prefix: str) -> Iterator[str]:
    weights = model.state_dict()
    saved = state.get(f"{prefix}signature")
    if saved is not None:  # else it is named as missing, below
        yield from model.model_signature.diff(saved)
    for name, module in model.named_modules():
        saved = state.get(f"{prefix}{name}.signature")
        if isinstance(module, HeadAttention) and saved is not None:
            yield from (f"{name}: {difference}" for difference in module.describe().diff(saved))
        saved = state.get(f"{prefix}{name}.dictionary_signature")
        expected = weights.get(f"{name}.dictionary_signature")
        # A model of another kind may keep it elsewhere; the shapes below show what does not fit.
        if saved is not None and expected is not None and not torch.equal(saved, expected.cpu()):
            yield _dictionary_difference(name, saved, expected)
    for name, tensor in weights.items():
        saved = state.get(prefix + name)
        if saved is None and name.endswith(SINES):
            side = name.partition(".")[0]
            yield f"the checkpoint's {side} has no positions (--no-token-positional-embeddings)"
        elif saved is None:
            yield f"{name} is missing from the checkpoint"
        elif saved.shape != tensor.shape and not name.endswith("signature"):
            shapes = f"{tuple(saved.shape)} in the checkpoint, {tuple(tensor.shape)} in the model"
            yield f"{name} has shape {shapes}"
    for name in state:
        if name.startswith(prefix) and name[len(prefix) :] not in weights:
            yield f"{name} is not in this model"


def _by_layer(differences: Iterable[str]) -> Iterator[str]:
    """Name each difference once, with the numbers of all layers that have it."""
    layers: dict[tuple[str, ...], list[str]] = {}
    for difference in differences:
        before, *rest = re.split(r"(?<=\.layers\.)(\d+)", difference, maxsplit=1)
        layers.setdefault((before, *rest[1:]), []).extend(rest[:1])
    for (before, *after), numbers in layers.items():
        yield before + ",".join(numbers) + "".join(after)


def _dictionary_difference(name: str, saved: Tensor, expected: Tensor) -> str:
    size, expected_size = int(saved[1]), int(expected[1])
    if size != expected_size:
        difference = f"{size} symbols in the checkpoint, {expected_size} in the model"
        return f"the {name}'s dictionary has {difference}"
    return f"the {name}'s dictionary has the same size ({size}) but other symbols, or another order"


# ---- heads of a plug-in --------------------------------------------------------------------------

#: Tokens of the comparison, and the largest accepted difference of outputs of size 1.
TRIED, CLOSE = 3, 1e-3


@torch.no_grad()
def check_steps(attention: HeadAttention, type_: AttentionType) -> None:
    """Raise UserError if heads of a plug-in compute something else in the steps of decoding.

    In training, queries and keys are the tokens of a sentence; in a step, they are the last tokens
    of its beams, and the cache may have dropped slots.  So an attention of a decoder must not read
    at which place of a tensor a token is, as rotary and relative positions do: the model would be
    trained by one function and translate by another.  A copy with random weights is tried, so that
    weights that start at 0 hide nothing.
    """
    if type(attention).__module__.startswith("fairseq_collab.") or type_ == "encoder":
        return
    tried = copy.deepcopy(attention).eval()
    tried.cache_bits = 0
    generator = torch.Generator().manual_seed(1)
    for weight in tried.parameters():
        if weight.device.type != "cpu":  # of a model without weights, or on a GPU already
            return
        weight.normal_(std=max(weight.shape, default=1) ** -0.5, generator=generator)
    like = tried.out_proj.weight
    x, y = (
        torch.randn(TRIED, 1, size, dtype=like.dtype, generator=generator)
        for size in (tried.embed_dim, tried.kdim)
    )
    if type_ == "cross":
        whole, _ = tried(x, y, y)
        steps = [tried(query, y, y)[0] for query in x.split(1)]
    else:
        future = torch.full((TRIED, TRIED), float("-inf"), dtype=like.dtype).triu(1)
        whole, _ = tried(x, x, x, attn_mask=future)
        state: IncrementalState = {}
        start_beam_history(state, 1, 1, like)
        steps = []
        for token in x.split(1):
            beam_history(state).extend(torch.zeros(1, 1, dtype=torch.bool))
            steps.append(tried(token, token, token, incremental_state=state)[0])
    if not torch.allclose(whole, torch.cat(steps), rtol=CLOSE, atol=CLOSE):
        problem = (
            f"its {type_} attention computes something else in the steps of decoding than in "
            "training: it reads at which place of a tensor a token is"
        )
        todo = "let queries, keys and values depend on their token only, as docs/own_heads.md says"
        raise UserError(problem, type(attention).__name__, todo)
