"""Which of fairseq's searches :class:`fairseq_collab.search.beam.BeamSearch` stands in for.

It finds what fairseq's ``SequenceGenerator`` finds in plain beam search with one model, and is used
for nothing else.
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.models import FairseqDecoder
from fairseq.models.transformer import TransformerModelBase
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.search import BeamSearch as FairseqBeamSearch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from torch import Tensor

from fairseq_collab.search.beam import BeamSearch, Hypothesis

#: What ``SequenceGenerator.generate`` may be given beside the sentences.
_ARGUMENTS = {"prefix_tokens", "constraints", "bos_token"}
#: The generator and its ensemble of (here) one model.
_PLAIN = (SequenceGenerator, EnsembleModel)


def why_not(generator: Any, sample: Any, **arguments: Any) -> str | None:
    """What of a call of fairseq's generator is not plain beam search; None if all is."""
    model = generator.model.single_model
    given = {name for name, value in arguments.items() if value is not None}
    net_input = sample["net_input"]
    reasons = {
        "another generator": (type(generator), type(generator.model)) != _PLAIN,
        "several models": generator.model.models_size != 1,
        "another search": type(generator.search) is not FairseqBeamSearch,
        "prefixes or constraints": not (given <= {"bos_token"} and {*arguments} <= _ARGUMENTS),
        "a language model": generator.lm_model is not None,
        "n-grams that may not repeat": generator.repeat_ngram_blocker is not None,
        "words that may not occur": generator.token_indices_to_suppress is not None,
        "lengths as in the source": generator.match_source_len,
        "no source words": "src_tokens" not in net_input or not net_input["src_tokens"].numel(),
        "a vocabulary of 2 beam words": generator.vocab_size <= 2 * generator.beam_size,
        "dropout": model.training or any(map(_drops, model.modules())),
    }
    found = [reason for reason, applies in reasons.items() if applies]
    if not found and generator.min_len > max_len(generator, net_input["src_tokens"]):
        found = ["a least length above the greatest"]  # which fairseq refuses
    return found[0] if found else None


def _drops(module: Any) -> bool:
    return isinstance(module, FairseqDropout) and module.apply_during_inference


def max_len(generator: Any, src_tokens: Tensor) -> int:
    """fairseq's limit of a hypothesis, without ``eos``."""
    by_source = int(generator.max_len_a * src_tokens.size(1) + generator.max_len_b)
    return min(by_source, generator.max_len - 1)


class ModelDecoding:
    """A model of ours that decodes a batch.

    The beams of a sentence share its encoder output, which is read at the first step only.
    """

    def __init__(self, model: Any, net_input: dict[str, Tensor], temperature: float):
        self.model = model
        self.temperature = temperature
        self.encoder_out = model.encoder.forward_torchscript(net_input)
        self.state: dict[str, Any] = {}
        self.plain_softmax = _has_plain_softmax(model)
        # Once for all steps: fairseq's own way is a walk through all modules at each.
        self.parts = [m for m in model.decoder.modules() if hasattr(m, "reorder_incremental_state")]

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """``(rows, t) -> (rows, V), (rows, S)`` or None."""
        logits, extra = self.model.decoder(
            tokens, encoder_out=self.encoder_out, incremental_state=self.state
        )
        if self.temperature != 1:
            logits = logits / self.temperature
        if self.plain_softmax and logits.dtype == torch.float32 and logits.is_cpu:
            log_probs = log_softmax_(logits)
        else:
            output = logits, extra
            log_probs = self.model.get_normalized_probs(output, log_probs=True, sample=None)
        (attention,) = extra["attn"]
        return log_probs[:, -1], None if attention is None else attention[:, -1]

    def follow(self, rows: Tensor) -> None:
        for part in self.parts:
            part.reorder_incremental_state(self.state, rows)


def _has_plain_softmax(model: Any) -> bool:
    """Whether probabilities of words are the softmax of the decoder's output, and no more."""
    return (
        model.decoder.adaptive_softmax is None
        and type(model).get_normalized_probs is TransformerModelBase.get_normalized_probs
        and type(model.decoder).get_normalized_probs is FairseqDecoder.get_normalized_probs
    )


def log_softmax_(logits: Tensor) -> Tensor:
    """The log-softmax over the last dimension, in place: memory for another result costs as much.

    torch's kernel for CPUs has read a row twice before it writes the first number of it.
    """
    return torch.log_softmax(logits, -1, out=logits)


@torch.no_grad()
def search(generator: Any, sample: Any, **arguments: Any) -> list[list[Hypothesis]] | None:
    """What ``generator.generate([model], sample, **arguments)`` gives; None if not plain."""
    if why_not(generator, sample, **arguments):
        return None
    net_input = sample["net_input"]
    source = net_input["src_tokens"]
    bos = arguments.get("bos_token")
    first = source.new_full((source.size(0),), generator.eos if bos is None else bos)
    decoding = ModelDecoding(generator.model.single_model, net_input, generator.temperature)
    return BeamSearch(decoding, first, generator, max_len(generator, source)).run()
