"""The best continuations of all beams of a sentence, without sorting beam x vocabulary numbers.

    score(beam, word) = score(beam) + log p(word | beam),      wanted: the k highest of a sentence

Adding the beam's score to each word of the vocabulary is a copy of all of them, and their k highest
cost more than the softmax.  Both are done for blocks of words instead:

    bound(beam, block) = score(beam) + max over the block's words of log p

Rounded addition never turns an order round, so the bound is the highest score of the block, bit for
bit.  At most k blocks hold the k highest scores, and these are blocks with the k highest bounds.

Shapes:
    B  sentences    beam  hypotheses a sentence    V  vocabulary    n  blocks = ceil(V / BLOCK)
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

#: Words a block: as measured from 4,000 to 32,768 words, twice or half as many are slower.
BLOCK = 64
IMPOSSIBLE = float("-inf")


class Candidates(NamedTuple):
    """Continuations of a sentence's beams, best first; each ``(B, k)``."""

    scores: Tensor
    words: Tensor
    beams: Tensor


def best_candidates(log_probs: Tensor, scores: Tensor | None, number: int) -> Candidates:
    """The ``number`` best of all continuations, as ``torch.topk`` of all scores has them.

    Where two of them have equal scores, torch's choice is not defined but fixed; then it is asked
    itself.  So equal scores come in the order in which fairseq's search has them.

    Args:
        log_probs: ``(B, beam, V)`` with ``beam * V > number``; what is not a number, or -inf, is
            impossible.
        scores: of the beams, ``(B, beam)``; None at the first step, where all are 0.
    """
    found = _best_by_blocks(log_probs, scores, number + 1)
    order = found.scores
    tied = ((order[:, 1:] == order[:, :-1]) & (order[:, 1:] > IMPOSSIBLE)).any(dim=1)  # (B)
    found = Candidates(*(each[:, :number] for each in found))
    if not bool(tied.any()):
        return found
    sentences = tied.nonzero().squeeze(1)
    of_torch = _best_by_torch(
        log_probs[sentences], None if scores is None else scores[sentences], number
    )
    pairs = zip(found, of_torch, strict=True)
    return Candidates(*(each.index_copy(0, sentences, other) for each, other in pairs))


def _best_by_torch(log_probs: Tensor, scores: Tensor | None, number: int) -> Candidates:
    """fairseq's own way, on all ``(B, beam, V)``."""
    all_scores = _possible(log_probs if scores is None else log_probs + scores.unsqueeze(-1))
    best, where = all_scores.flatten(1).topk(number)
    vocabulary = log_probs.size(2)
    return Candidates(best, where % vocabulary, where // vocabulary)


def _best_by_blocks(log_probs: Tensor, scores: Tensor | None, number: int) -> Candidates:
    """The same scores, best first; of equal ones any."""
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
    best, where = inside.topk(number)
    return Candidates(best, words.flatten(1).gather(1, where), beams.gather(1, where // BLOCK))


def _block_maxima(x: Tensor) -> Tensor:
    """``(B, beam, V) -> (B, beam, n)``; what is not a number is the highest of its block."""
    whole = x.size(2) // BLOCK * BLOCK
    maxima = x[..., :whole].unflatten(2, (-1, BLOCK)).amax(-1)
    if whole == x.size(2):
        return maxima
    return torch.cat([maxima, x[..., whole:].amax(-1, keepdim=True)], dim=2)


def _possible(scores: Tensor) -> Tensor:
    """Scores, with -inf for what is not a number."""
    return scores.nan_to_num(nan=IMPOSSIBLE, posinf=float("inf"), neginf=IMPOSSIBLE)
