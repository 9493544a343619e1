"""When :class:`fairseq_collab.search.beam.BeamSearch` replaces fairseq's search.

It replaces ``SequenceGenerator`` in plain beam search with one model.
"""

from __future__ import annotations

from typing import Any

import torch
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.search import BeamSearch as FairseqBeamSearch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from torch import Tensor

from fairseq_collab.search.beam import BeamSearch, Hypothesis, ModelDecoding

#: Arguments of ``SequenceGenerator.generate`` besides the sentences.
_ARGUMENTS = {"prefix_tokens", "constraints", "bos_token"}
#: The generator and its ensemble of (here) one model.
_PLAIN = (SequenceGenerator, EnsembleModel)


def why_not(generator: Any, sample: Any, **arguments: Any) -> str | None:
    """Why a call of fairseq's generator is not plain beam search; None if it is."""
    model = generator.model.single_model
    dropouts = [module for module in model.modules() if isinstance(module, FairseqDropout)]
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
        "dropout": model.training or any(one.apply_during_inference for one in dropouts),
    }
    found = [reason for reason, applies in reasons.items() if applies]
    if not found and generator.min_len > max_len(generator, net_input["src_tokens"]):
        found = ["a least length above the greatest"]  # fairseq rejects it
    return found[0] if found else None


def max_len(generator: Any, src_tokens: Tensor) -> int:
    """fairseq's limit of a hypothesis, without ``eos``."""
    by_source = int(generator.max_len_a * src_tokens.size(1) + generator.max_len_b)
    return min(by_source, generator.max_len - 1)


@torch.no_grad()
def search(generator: Any, sample: Any, **arguments: Any) -> list[list[Hypothesis]] | None:
    """The result of ``generator.generate([model], sample, **arguments)``; None if not plain."""
    if why_not(generator, sample, **arguments):
        return None
    net_input = sample["net_input"]
    source = net_input["src_tokens"]
    bos = arguments.get("bos_token")
    first = source.new_full((source.size(0),), generator.eos if bos is None else bos)
    decoding = ModelDecoding(generator.model.single_model, net_input, generator.temperature)
    return BeamSearch(decoding, first, generator, max_len(generator, source)).run()
