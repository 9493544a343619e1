"""Beam search as in fairseq: a sentence is done when ``beam`` of its hypotheses have ended.

    score(y_1 .. y_t) = sum_s log p(y_s | y_1 .. y_s-1, x),        reported: score / t^lenpen

Each step ranks the 2 beam best continuations of a sentence.  Those of the best ``beam`` that end
(``eos``) become hypotheses; the best ``beam`` that do not end continue.

The model is called with the rows of fairseq's search, in fairseq's order, so that both searches see
equal numbers, to the last bit.  The work between calls differs: candidates are found by blocks
(:mod:`fairseq_collab.search.candidates`), and work without effect is left out.

Shapes:
    B  sentences in the batch    beam  hypotheses per sentence    rows  B * beam, by sentence
    t  steps so far    V  vocabulary    S  source length    k  candidates = 2 beam
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from fairseq.models import FairseqDecoder
from fairseq.models.transformer import TransformerModelBase
from fairseq.modules.fairseq_dropout import FairseqDropout
from fairseq.search import BeamSearch as FairseqBeamSearch
from fairseq.sequence_generator import EnsembleModel, SequenceGenerator
from torch import Tensor

from collab_common.errors import UserError
from fairseq_collab.kernels.onednn import packed_weights
from fairseq_collab.search.candidates import IMPOSSIBLE, Candidates, best_candidates

#: As in fairseq: ``tokens (t)``, ``score ()``, ``positional_scores (t)``, ``attention (S, t)``, and
#: ``alignment``, which is empty.
Hypothesis = dict[str, Tensor]
#: Further arguments of ``SequenceGenerator.generate``.
_ARGUMENTS = {"prefix_tokens", "constraints", "bos_token"}
#: The generator and its ensemble of (here) one model.
_PLAIN = (SequenceGenerator, EnsembleModel)


class ModelDecoding:
    """A model of ours that decodes a batch.

    The beams of a sentence share its encoder output, which only the first step reads.
    """

    def __init__(self, model: Any, net_input: dict[str, Tensor], temperature: float):
        self.model = model
        self.temperature = temperature
        self.encoder_out = model.encoder.forward_torchscript(net_input)
        self.state: dict[str, Any] = {}
        self.plain_softmax = _has_plain_softmax(model)
        # Found once; fairseq visits all modules at each step.
        self.parts = [m for m in model.decoder.modules() if hasattr(m, "reorder_incremental_state")]

    def step(self, tokens: Tensor) -> tuple[Tensor, Tensor | None]:
        """Continue ``tokens (rows, t)``.

        Returns:
            Log-probabilities ``(rows, V)`` of the next token, which the caller may change, and
            attention weights ``(rows, S)``, or None.
        """
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
        """Reorder the caches: row ``i`` becomes a copy of row ``rows[i]``."""
        for part in self.parts:
            part.reorder_incremental_state(self.state, rows)


def _has_plain_softmax(model: Any) -> bool:
    """Whether probabilities of words are the plain softmax of the decoder's output."""
    return (
        model.decoder.adaptive_softmax is None
        and type(model).get_normalized_probs is TransformerModelBase.get_normalized_probs
        and type(model.decoder).get_normalized_probs is FairseqDecoder.get_normalized_probs
    )


def log_softmax_(logits: Tensor) -> Tensor:
    """The log-softmax over the last dimension, in place: allocating a result costs as much time.

    This is safe: torch's CPU kernel reads a row twice before it writes to it.
    """
    return torch.log_softmax(logits, -1, out=logits)


class BeamSearch:
    """The search for one batch.

    Args:
        first: the token before each sentence's first, ``(B,)``.
        options: fairseq's ``SequenceGenerator``, whose attributes are the search options.
        max_len: of a hypothesis, in tokens without ``eos``.
    """

    def __init__(self, decoding: ModelDecoding, first: Tensor, options: Any, max_len: int):
        self.decoding = decoding
        self.options = options
        self.beam = options.beam_size
        self.max_len = max_len
        #: Each row's tokens, the first one included, ``(rows, t + 1)``; scores up to each, ``(rows,
        #: t)``; the rows of earlier steps that it continues, ``(rows, t)``.
        self.tokens = first.repeat_interleave(self.beam).unsqueeze(1)
        self.scores = torch.zeros(len(self.tokens), 0, dtype=torch.float32, device=first.device)
        self.earlier = self.tokens[:, :0]
        #: Attention weights of each step, ``(rows, S)``; never copied along with the hypotheses.
        self.attention: list[Tensor] = []
        #: The sentence at each place of the batch.
        self.places = list(range(len(first)))
        self.ended: list[list[Hypothesis]] = [[] for _ in self.places]

    def run(self) -> list[list[Hypothesis]]:
        """Hypotheses of every sentence, best first.

        Raises:
            UserError: the model gives no word of a sentence a probability.
        """
        for step in range(self.max_len + 1):
            found = self._candidates(step)
            ends = (found.words == self.options.eos) & (found.scores > IMPOSSIBLE)  # (B, k)
            some_end = bool(ends.any())
            done = self._end(ends, found) if some_end else []
            if step == self.max_len or len(done) == len(self.places):
                break
            self._advance(self._continued(ends, found) if some_end else found, done)
        return [sorted(hypotheses, key=_score, reverse=True) for hypotheses in self.ended]

    # ---- one step --------------------------------------------------------------------------------

    def _candidates(self, step: int) -> Candidates:
        """The best continuations of every sentence, ``(B, k)``."""
        log_probs, attention = self.decoding.step(self.tokens)
        self._forbid(log_probs, step)
        beam = self.beam
        log_probs = log_probs.unflatten(0, (-1, beam))  # (B, beam, V)
        if step == 0:  # the beams of a sentence are equal
            found = best_candidates(log_probs[:, :1], None, 2 * beam)
        else:
            found = best_candidates(
                log_probs, self.scores[:, -1].unflatten(0, (-1, beam)), 2 * beam
            )
        if not bool((found.scores[:, 0] > IMPOSSIBLE).all()):
            raise UserError(
                "the model gives no word a probability: its output is not a number",
                todo="look for NaN or infinity in its weights, or translate without --fp16",
            )
        if attention is not None:
            self.attention.append(attention.to(self.scores))
        return found

    def _forbid(self, log_probs: Tensor, step: int) -> None:
        """Set tokens that may not come next to -inf, in place: ``(rows, V)``."""
        options = self.options
        log_probs[:, options.pad] = IMPOSSIBLE
        if options.unk_penalty:
            log_probs[:, options.unk] -= options.unk_penalty
        if step >= self.max_len:
            log_probs[:, : options.eos] = IMPOSSIBLE
            log_probs[:, options.eos + 1 :] = IMPOSSIBLE
        if step < options.min_len:
            log_probs[:, options.eos] = IMPOSSIBLE

    def _end(self, ends: Tensor, found: Candidates) -> list[int]:
        """Keep the hypotheses that end; returns the places of sentences that are done."""
        where, ranks = ends[:, : self.beam].nonzero(as_tuple=True)
        if not len(where):
            return []
        rows = where * self.beam + found.beams[where, ranks]
        places = where.tolist()
        for place, hypothesis in zip(
            places, self._ended(rows, found.scores[where, ranks]), strict=True
        ):
            hypotheses = self.ended[self.places[place]]
            if len(hypotheses) < self.beam:
                hypotheses.append(hypothesis)
        return [
            place for place in sorted({*places}) if len(self.ended[self.places[place]]) == self.beam
        ]

    def _ended(self, rows: Tensor, scores: Tensor) -> Iterator[Hypothesis]:
        """Hypotheses that end with these scores; ``rows, scores: (n,)``."""
        options = self.options
        tokens = torch.nn.functional.pad(self.tokens[rows, 1:], (0, 1), value=options.eos)
        up_to = torch.cat([self.scores[rows], scores.unsqueeze(1)], dim=1)
        each = torch.cat([up_to[:, :1], up_to[:, 1:] - up_to[:, :-1]], dim=1)
        if options.normalize_scores:
            scores = scores / tokens.size(1) ** options.len_penalty
        nothing = torch.empty(0)
        attention: Any = [nothing] * len(rows)
        if self.attention:
            earlier = torch.cat([self.earlier[rows], rows.unsqueeze(1)], dim=1).unbind(1)
            steps = zip(self.attention, earlier, strict=True)
            attention = torch.stack([weights[row] for weights, row in steps], dim=-1)  # (n, S, t)
        for one in zip(tokens, scores, each, attention, strict=True):
            names = ("tokens", "score", "positional_scores", "attention")
            yield {**dict(zip(names, one, strict=True)), "alignment": nothing}

    # ---- the next step -------------------------------------------------------------------------

    def _continued(self, ends: Tensor, found: Candidates) -> Candidates:
        """The best that do not end, ``(B, beam)``: at most ``beam`` of ``2 beam`` end."""
        order = ends.byte().sort(dim=1, stable=True).indices[:, : self.beam]
        return Candidates(*(each.gather(1, order) for each in found))

    def _advance(self, found: Candidates, done: list[int]) -> None:
        """Continue the best ``beam`` candidates of all sentences but those that are done."""
        scores, words, beams = (each[:, : self.beam] for each in found)
        rows = torch.arange(len(self.places), device=beams.device).unsqueeze(1) * self.beam + beams
        if done:
            left = sorted({*range(len(self.places))} - {*done})
            self.places = [self.places[place] for place in left]
            keep = torch.tensor(left, device=rows.device)
            rows, scores, words = rows[keep], scores[keep], words[keep]
        rows = rows.flatten()
        self.decoding.follow(rows)
        self.tokens = torch.cat([self.tokens[rows], words.reshape(-1, 1)], dim=1)
        self.scores = torch.cat([self.scores[rows], scores.reshape(-1, 1)], dim=1)
        self.earlier = torch.cat([self.earlier[rows], rows.unsqueeze(1)], dim=1)


def _score(hypothesis: Hypothesis) -> float:
    return float(hypothesis["score"])


# ---- in place of fairseq's search ----------------------------------------------------------------


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
    model = generator.model.single_model
    with packed_weights(model):
        decoding = ModelDecoding(model, net_input, generator.temperature)
        return BeamSearch(decoding, first, generator, max_len(generator, source)).run()
