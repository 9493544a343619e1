"""The best continuations of a sentence's beams, without sorting beam x vocabulary numbers.

    score(beam, word) = score(beam) + log p(word | beam),      wanted: the k highest of a sentence

Adding the beam's score to each word copies the whole table, and finding the k highest costs more
than the softmax.  Both are done for blocks of words instead:

    bound(beam, block) = score(beam) + max over the block's words of log p

Rounded addition never reverses an order, so the bound is the highest score of the block, bit for
bit.  The k highest scores are in the k blocks with the highest bounds.

Shapes:
    B  sentences    beam  hypotheses per sentence    V  vocabulary    n  blocks = ceil(V / BLOCK)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: Words per block.  With 4,000 to 32,768 words, blocks of 32 and of 128 words were slower.
BLOCK = 64
IMPOSSIBLE = float("-inf")


class Candidates(NamedTuple):
    """Continuations of a sentence's beams, best first; each ``(B, k)``."""

    scores: Tensor
    words: Tensor
    beams: Tensor


def best_candidates(
    log_probs: Tensor, scores: Tensor | None, number: int
) -> tuple[Candidates, Tensor]:
    """Return the ``number`` best continuations, and the sentences ``(B,)`` with equal scores.

    Without equal scores, candidates are in the order of ``torch.topk`` of all scores; with equal
    scores, :func:`in_order_of_torch` puts them into this order.

    Args:
        log_probs: ``(B, beam, V)`` with ``beam * V > number``; NaN and -inf are impossible.
        scores: scores of the beams, ``(B, beam)``; None at the first step, where all are 0.
    """
    best = _best_by_blocks(log_probs, scores, number + 1)
    ranked = best.scores
    tied = ((ranked[:, 1:] == ranked[:, :-1]) & (ranked[:, 1:] > IMPOSSIBLE)).any(dim=1)
    return Candidates(*(column[:, :number] for column in best)), tied


def in_order_of_torch(
    best: Candidates, sentences: Tensor, log_probs: Tensor, scores: Tensor | None
) -> Candidates:
    """Return the candidates, those of some ``sentences (n,)`` in the order of fairseq's search.

    fairseq orders equal scores as torch does.
    """
    of_torch = _best_by_torch(
        log_probs[sentences], None if scores is None else scores[sentences], best.scores.size(1)
    )
    pairs = zip(best, of_torch, strict=True)
    return Candidates(*(column.index_copy(0, sentences, other) for column, other in pairs))


def _best_by_torch(log_probs: Tensor, scores: Tensor | None, number: int) -> Candidates:
    """Find the best scores as fairseq does, among all ``(B, beam, V)``."""
    all_scores = _possible(log_probs if scores is None else log_probs + scores.unsqueeze(-1))
    best, indices = all_scores.flatten(1).topk(number)
    vocabulary = log_probs.size(2)
    return Candidates(best, indices % vocabulary, indices // vocabulary)


def _best_by_blocks(log_probs: Tensor, scores: Tensor | None, number: int) -> Candidates:
    """Find the best scores by blocks; equal scores come in any order."""
    _, beam, vocabulary = log_probs.shape
    bounds = _block_maxima(log_probs)  # (B, beam, n)
    if scores is not None:
        bounds = bounds + scores.unsqueeze(-1)
    blocks = bounds.size(2)
    chosen = _possible(bounds).flatten(1).topk(min(number, beam * blocks)).indices  # (B, k)
    beams, block = chosen // blocks, chosen % blocks
    words = block.unsqueeze(2) * BLOCK + torch.arange(BLOCK, device=block.device)  # (B, k, BLOCK)
    beyond = words >= vocabulary  # in the last block
    words = words.clamp_(max=vocabulary - 1)
    inside = log_probs.flatten(1).gather(1, (beams.unsqueeze(2) * vocabulary + words).flatten(1))
    if scores is not None:
        inside = inside + scores.gather(1, beams).repeat_interleave(BLOCK, dim=1)
    inside = _possible(inside).masked_fill_(beyond.flatten(1), IMPOSSIBLE)  # (B, k * BLOCK)
    best, indices = inside.topk(number)
    return Candidates(best, words.flatten(1).gather(1, indices), beams.gather(1, indices // BLOCK))


def _block_maxima(x: Tensor) -> Tensor:
    """Return the highest number of each block, ``(B, beam, V) -> (B, beam, n)``; NaN is highest."""
    whole = x.size(2) // BLOCK * BLOCK
    maxima = x[..., :whole].unflatten(2, (-1, BLOCK)).amax(-1)
    if whole == x.size(2):
        return maxima
    return torch.cat([maxima, x[..., whole:].amax(-1, keepdim=True)], dim=2)


def _possible(scores: Tensor) -> Tensor:
    """Return scores with -inf in place of NaN."""
    return scores.nan_to_num(nan=IMPOSSIBLE, posinf=float("inf"), neginf=IMPOSSIBLE)
