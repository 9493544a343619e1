"""Beam search as in fairseq: a sentence is done when ``beam`` of its hypotheses have ended.

    score(y_1 .. y_t) = sum_s log p(y_s | y_1 .. y_s-1, x),        reported: score / t^lenpen

Each step ranks the 2 beam best continuations of a sentence.  Those of the best ``beam`` that end
(``eos``) become hypotheses; the best ``beam`` that do not end continue.

The model is called with the rows of fairseq's search, in fairseq's order, so that both searches see
equal numbers, to the last bit (in half precision with adaptive softmax, fairseq also rounds the
sums of scores; ours are in single precision).  The work between calls differs: candidates are
ranked by blocks (:mod:`fairseq_collab.decoding.candidates`), and work without effect is left out.
A step waits for a GPU once, to learn which hypotheses end, and again where scores are equal.

Shapes:
    B  sentences in the batch    beam  hypotheses per sentence    rows  B * beam, by sentence
    t  steps so far    V  vocabulary    S  source length    k  candidates = 2 beam
"""

from __future__ import annotations

import functools
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
from fairseq_collab.attention.cache import beam_history
from fairseq_collab.cpu_kernels.onednn import packed_weights
from fairseq_collab.decoding.candidates import (
    IMPOSSIBLE,
    Candidates,
    best_candidates,
    in_order_of_torch,
)
from fairseq_collab.decoding.fixed_steps import explain, in_fixed_shapes, is_requested

#: As in fairseq: ``tokens (t)``, ``score ()``, ``positional_scores (t)``, ``attention (S, t)``, and
#: ``alignment``, which is empty.
Hypothesis = dict[str, Tensor]
#: Candidates that end: the index of the sentence in the batch, and the candidate's rank.
Ends = list[tuple[int, int]]
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
        self.overwrites_logits = softmax_overwrites() and _has_plain_softmax(model)
        # Listed once; fairseq visits all modules at each step.
        self.attentions = [
            module
            for module in model.decoder.modules()
            if hasattr(module, "reorder_incremental_state") and module is not model.decoder
        ]

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
        if self.overwrites_logits and logits.dtype == torch.float32 and logits.is_cpu:
            log_probs = log_softmax_(logits)
        else:
            output = logits, extra
            log_probs = self.model.get_normalized_probs(output, log_probs=True, sample=None)
        (attention,) = extra["attn"]
        return log_probs[:, -1], None if attention is None else attention[:, -1]

    def reorder(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder the caches: row ``i`` becomes a copy of row ``rows[i]``.

        Args:
            sentences: where each sentence of the batch was before; None if all stay.
        """
        beam_history(self.state).reorder(rows, sentences)
        for attention in self.attentions:
            attention.reorder_incremental_state(self.state, rows)


def _has_plain_softmax(model: Any) -> bool:
    """Return whether probabilities of words are the plain softmax of the decoder's output."""
    return (
        model.decoder.adaptive_softmax is None
        and type(model).get_normalized_probs is TransformerModelBase.get_normalized_probs
        and type(model.decoder).get_normalized_probs is FairseqDecoder.get_normalized_probs
    )


def log_softmax_(logits: Tensor) -> Tensor:
    """Compute the log-softmax over the last dimension in place, which saves an allocation."""
    return torch.log_softmax(logits, -1, out=logits)


# Not computed at import, where it would start threads: forked processes have none of them, and
# would wait for ever.
@functools.cache
def softmax_overwrites() -> bool:
    """Return whether torch's log-softmax can write over its input, which torch does not promise."""
    logits = torch.arange(2000.0).view(2, -1).sin()
    return torch.equal(logits.log_softmax(-1), log_softmax_(logits.clone()))


class BeamSearch:
    """The search for one batch.

    Args:
        first: the token before each sentence's first one, ``(B,)``.
        options: fairseq's ``SequenceGenerator``, whose attributes are the options of the search.
        max_len: the largest length of a hypothesis, in tokens without ``eos``.
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
        #: The sentence at each index of the batch.
        self.sentences = list(range(len(first)))
        self.ended: list[list[Hypothesis]] = [[] for _ in self.sentences]

    def run(self) -> list[list[Hypothesis]]:
        """Return the hypotheses of every sentence, best first.

        Raises:
            UserError: the model gives no word of a sentence a probability.
        """
        for step in range(self.max_len + 1):
            best, ends = self._candidates(step)
            done = self._store_ended(ends, best)
            if step == self.max_len or len(done) == len(self.sentences):
                break
            self._advance(self._continued(best) if ends else best, done)
        return [sorted(hyps, key=lambda h: float(h["score"]), reverse=True) for hyps in self.ended]

    # ---- one step --------------------------------------------------------------------------------

    def _candidates(self, step: int) -> tuple[Candidates, Ends]:
        """Return the best continuations of every sentence, ``(B, k)``, and those that end."""
        log_probs, attention = self.decoding.step(self.tokens)
        self._forbid(log_probs, step)
        beam, scores = self.beam, None
        log_probs = log_probs.unflatten(0, (-1, beam))  # (B, beam, V)
        if step == 0:  # the beams of a sentence are equal
            log_probs = log_probs[:, :1]
        else:
            scores = self.scores[:, -1].unflatten(0, (-1, beam))
        best, tied = best_candidates(log_probs, scores, 2 * beam)
        ties, ends = self._on_host(best, tied)
        if ties:
            sentences = torch.tensor(ties, device=log_probs.device)
            best = in_order_of_torch(best, sentences, log_probs, scores)
            _, ends = self._on_host(best, tied)
        if attention is not None:
            self.attention.append(attention.to(self.scores))
        return best, ends

    def _on_host(self, best: Candidates, tied: Tensor) -> tuple[list[int], Ends]:
        """Return the sentences with ties, and the candidates that end: all that the host needs."""
        ends = self._can_end(best)[:, : self.beam]
        possible = best.scores[:, :1] > IMPOSSIBLE
        flags = torch.cat([possible, tied.unsqueeze(1), ends], dim=1).tolist()  # waits for a GPU
        if not all(row[0] for row in flags):
            raise UserError(
                "the model's output is NaN, so no word has a probability",
                todo="check the weights for NaN or infinity, or translate without --fp16",
            )
        ties = [index for index, row in enumerate(flags) if row[1]]
        return ties, [
            (index, rank)
            for index, row in enumerate(flags)
            for rank, end in enumerate(row[2:])
            if end
        ]

    def _can_end(self, best: Candidates) -> Tensor:
        """Return which candidates are hypotheses: ``(B, k)``."""
        return (best.words == self.options.eos) & (best.scores > IMPOSSIBLE)

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

    def _store_ended(self, ends: Ends, best: Candidates) -> list[int]:
        """Keep the hypotheses that end; return the indices of the sentences that are done."""
        if not ends:
            return []
        indices, ranks = torch.tensor(ends, device=best.beams.device).unbind(1)
        rows = indices * self.beam + best.beams[indices, ranks]
        done = []
        ended = self._hypotheses(rows, best.scores[indices, ranks])
        for (index, _), hypothesis in zip(ends, ended, strict=True):
            hypotheses = self.ended[self.sentences[index]]
            if len(hypotheses) < self.beam:
                hypotheses.append(hypothesis)
                if len(hypotheses) == self.beam:
                    done.append(index)
        return done

    def _hypotheses(self, rows: Tensor, scores: Tensor) -> Iterator[Hypothesis]:
        """Yield the hypotheses that end with these scores; ``rows, scores: (n,)``."""
        options = self.options
        tokens = torch.nn.functional.pad(self.tokens[rows, 1:], (0, 1), value=options.eos)
        up_to = torch.cat([self.scores[rows], scores.unsqueeze(1)], dim=1)
        word_scores = torch.cat([up_to[:, :1], up_to[:, 1:] - up_to[:, :-1]], dim=1)
        if options.normalize_scores:
            scores = scores / tokens.size(1) ** options.len_penalty
        nothing = torch.empty(0)
        attention: Any = [nothing] * len(rows)
        if self.attention:
            earlier = torch.cat([self.earlier[rows], rows.unsqueeze(1)], dim=1).unbind(1)
            steps = zip(self.attention, earlier, strict=True)
            attention = torch.stack([weights[row] for weights, row in steps], dim=-1)  # (n, S, t)
        for values in zip(tokens, scores, word_scores, attention, strict=True):
            names = ("tokens", "score", "positional_scores", "attention")
            yield {**dict(zip(names, values, strict=True)), "alignment": nothing}

    # ---- the next step -------------------------------------------------------------------------

    def _continued(self, best: Candidates) -> Candidates:
        """Return the best candidates that do not end, ``(B, beam)``.

        There are enough of them, because at most ``beam`` of the ``2 beam`` candidates end.
        """
        order = self._can_end(best).byte().sort(dim=1, stable=True).indices[:, : self.beam]
        return Candidates(*(column.gather(1, order) for column in best))

    def _advance(self, best: Candidates, done: list[int]) -> None:
        """Continue the best ``beam`` candidates of all sentences that are not done."""
        scores, words, beams = (column[:, : self.beam] for column in best)
        batch, staying_rows = len(self.sentences), None
        rows = torch.arange(batch, device=beams.device).unsqueeze(1) * self.beam + beams
        if done:
            staying = sorted({*range(batch)} - {*done})
            self.sentences = [self.sentences[index] for index in staying]
            staying_rows = torch.tensor(staying, device=rows.device)
            rows, scores, words = rows[staying_rows], scores[staying_rows], words[staying_rows]
        rows = rows.flatten()
        self.decoding.reorder(rows, staying_rows)
        self.tokens = torch.cat([self.tokens[rows], words.reshape(-1, 1)], dim=1)
        self.scores = torch.cat([self.scores[rows], scores.reshape(-1, 1)], dim=1)
        self.earlier = torch.cat([self.earlier[rows], rows.unsqueeze(1)], dim=1)


# ---- instead of fairseq's search -----------------------------------------------------------------


def is_supported(generator: Any, sample: Any, **arguments: Any) -> bool:
    """Return whether a call of fairseq's generator is plain beam search with one model."""
    model, source = generator.model.single_model, sample["net_input"].get("src_tokens")
    passed = {name for name, value in arguments.items() if value is not None}
    return (
        (type(generator), type(generator.model)) == _PLAIN
        and generator.model.models_size == 1
        and type(generator.search) is FairseqBeamSearch
        and passed <= {"bos_token"}
        and {*arguments} <= _ARGUMENTS
        and generator.lm_model is None
        and generator.repeat_ngram_blocker is None
        and generator.token_indices_to_suppress is None
        and not generator.match_source_len
        and source is not None
        and source.numel() > 0
        and generator.vocab_size > 2 * generator.beam_size
        and generator.min_len <= max_len(generator, source)  # fairseq rejects it
        and not model.training
        and not any(
            module.apply_during_inference
            for module in model.modules()
            if isinstance(module, FairseqDropout)
        )
    )


def max_len(generator: Any, src_tokens: Tensor) -> int:
    """Return fairseq's limit of the length of a hypothesis, without ``eos``."""
    by_source = int(generator.max_len_a * src_tokens.size(1) + generator.max_len_b)
    return min(by_source, generator.max_len - 1)


@torch.no_grad()
def search(generator: Any, sample: Any, **arguments: Any) -> list[list[Hypothesis]] | None:
    """Return the result of ``generator.generate([model], sample, **arguments)``.

    It is None if the call is not plain beam search with one model.
    """
    if not is_supported(generator, sample, **arguments):
        if is_requested():
            explain("this is not plain beam search with one model")
        return None
    net_input = sample["net_input"]
    source = net_input["src_tokens"]
    bos = arguments.get("bos_token")
    first_tokens = source.new_full((source.size(0),), generator.eos if bos is None else bos)
    model = generator.model.single_model
    with packed_weights(model):
        ordinary = ModelDecoding(model, net_input, generator.temperature)
        with in_fixed_shapes(ordinary) as decoding:
            return BeamSearch(decoding, first_tokens, generator, max_len(generator, source)).run()
