"""Keys and values that attentions keep while sentences are decoded, and beams that share them.

Beam search continues, at every step, some hypotheses several times and others not at all.  Moving
the cached keys and values along would copy the whole cache at every step.  Here they stay in the
slot where they were written (:class:`Slots`),

    slot(t, j) = t * beam + j        key and value of beam j at step t,

and a beam sees the slots of the hypotheses that it descends from.  All beams of a sentence are
scored against all of its slots in one product; a mask hides the slots of other hypotheses.  The
decoder keeps the mask, one :class:`BeamHistory` for all its attentions.  It lays a step out so that
the beams of a sentence are its query positions (:func:`fold_beams`).

The beams of a sentence soon descend from one hypothesis.  A slot that no beam sees is *dead*: no
later beam can see it.  The history says from time to time which slots are *live*, and caches keep
only these, so that slot numbers above hold until the first time.  No score changes.

Rounded keys and values are kept packed, the numbers of all heads together.  A step attends to them
block by block (:mod:`fairseq_collab.attention.packed`), or unpacks all of one attention.

Shapes:
    B  sentences      beam  hypotheses per sentence      rows  B * beam, sentence by sentence
    t  steps so far   S  keys: slots, at most t * beam, or source tokens   k  live slots
    G  heads of keys or of values, a divisor of H    e, h_v  their sizes
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fairseq_collab.attention.building import merge_heads, split_heads
from fairseq_collab.attention.rounding import pack, rounded, unpack

#: fairseq's: the state of each module between steps of decoding.
IncrementalState = dict[str, dict[str, Any]]
#: Slots are allocated for this many steps at a time, or for an eighth of the present ones, if more.
_CHUNK = 16
#: Steps between two searches for dead slots; each search waits for a GPU.
DROP_EVERY = 16
#: Dead slots are dropped once they are this share of the live ones.  Reading dead slots in every
#: step costs time, and copying the live ones does.  At 200 tokens, shares from a half to a 32nd
#: took 0.71 to 0.75 of the time with all slots, on a machine too busy to tell them apart.
DROP_SHARE = 1 / 8
_BEAM_HISTORY = "beam_history"


class Context(NamedTuple):
    """Keys, values and mask that queries attend to."""

    #: ``(B, G, S, e)``
    keys: Tensor
    #: ``(B, G, S, h_v)``
    values: Tensor
    #: See :func:`fairseq_collab.attention.scores.mask_scores`.
    mask: Tensor | None


class PackedContext(NamedTuple):
    """Keys, values and mask with rounded numbers, as a cache keeps them."""

    keys: Slots
    #: ``keys`` itself where one tensor is both.
    values: Slots
    mask: Tensor | None

    def unpacked(self) -> Context:
        """Return the context with the rounded numbers unpacked."""
        keys = self.keys.numbers()
        values = keys if self.values is self.keys else self.values.numbers()
        return Context(keys, values, self.mask)


class Cache:
    """Keys and values of one attention.

    Where one tensor is both (a latent), it is kept once.

    Args:
        mask: of a source with padding, for cross-attention only.
        bits: of a rounded number; 0 without rounding.
        is_source: the slots are source tokens, not those of beams.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        mask: Tensor | None = None,
        bits: int = 0,
        *,
        is_source: bool = False,
    ):
        self.keys, self.mask, self.is_source = Slots(keys, bits), mask, is_source
        self.values = self.keys if values is keys else Slots(values, bits)

    def context(self, mask: Tensor | None) -> Context | PackedContext:
        """Return all keys and values so far."""
        if self.keys.bits:
            return PackedContext(self.keys, self.values, mask)
        return Context(self.keys.filled, self.values.filled, mask)

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Add the keys and values of more steps."""
        self.keys.append(keys)
        if self.values is not self.keys:
            self.values.append(values)

    def select(self, sentences: Tensor) -> None:
        """Make sentence ``i`` a copy of sentence ``sentences[i]``."""
        for slots in {self.keys, self.values}:
            slots.select(sentences)
        if self.mask is not None:
            self.mask = self.mask.index_select(0, sentences)

    def keep(self, slots: Tensor) -> None:
        """Keep only the ``slots (B, k)`` of each sentence, in this order."""
        for part in {self.keys, self.values}:
            part.keep(slots)

    def follow(self, history: BeamHistory) -> None:
        """Move sentences and drop slots as the last reorder of the history did."""
        if history.moved is not None:
            self.select(history.moved)
        if history.kept is not None and not self.is_source:
            self.keep(history.kept)


class Slots:
    """Keys or values ``(B, G, slots, e)`` that grow in place; rounded ones are packed."""

    def __init__(self, steps: Tensor, bits: int = 0):
        #: Of a number; 0 without rounding.
        self.bits = bits
        #: ``G`` and ``e``.
        self.heads, self.size, self.dtype = steps.size(1), steps.size(3), steps.dtype
        self._buffer, self._filled = self._stored(steps), steps.size(2)

    @property
    def filled(self) -> Tensor:
        """Return what is kept, not a copy: ``(B, G, slots, e)``, or ``(B, 1, slots, bytes)``."""
        return self._buffer[:, :, : self._filled]

    def numbers(self, which: slice = slice(None)) -> Tensor:
        """Return the keys or values ``(B, G, slots, e)`` of some slots; rounded ones are copies."""
        if not self.bits:
            return self.filled[:, :, which]
        packed = self.filled[:, 0, which].transpose(0, 1)
        return split_heads(
            unpack(packed, self.heads * self.size, self.bits, self.dtype), self.heads
        )

    def _stored(self, steps: Tensor) -> Tensor:
        if not self.bits:
            return steps
        return pack(merge_heads(steps), self.bits).transpose(0, 1).unsqueeze(1)

    def append(self, steps: Tensor) -> None:
        """Write ``steps (B, G, n, e)`` after the filled slots."""
        new = self._stored(steps)
        end = self._filled + new.size(2)
        if end > self._buffer.size(2):
            spare = max(_CHUNK * new.size(2), self._filled // 8)
            self._buffer = F.pad(self.filled, (0, 0, 0, new.size(2) + spare))
        self._buffer[:, :, self._filled : end] = new
        self._filled = end

    def select(self, sentences: Tensor) -> None:
        """Make sentence ``i`` a copy of sentence ``sentences[i]``."""
        self._buffer = self._buffer.index_select(0, sentences)

    def keep(self, slots: Tensor) -> None:
        """Keep only the ``slots (B, k)`` of each sentence, in this order."""
        batch, groups, room, _ = self._buffer.shape
        first = torch.arange(0, batch * groups * room, room, device=slots.device)
        rows = first.view(batch, groups, 1) + slots.unsqueeze(1)  # (B, G, k)
        # Whole rows: several times as fast as torch.gather on a CPU.
        kept = self._buffer.flatten(0, 2).index_select(0, rows.flatten())
        self._buffer, self._filled = kept.view(batch, groups, slots.size(1), -1), slots.size(1)


def as_cached(x: Tensor, bits: int) -> Tensor:
    """Return keys or values ``(B, G, S, e)`` as a cache returns them: rounded, if it rounds."""
    return split_heads(rounded(merge_heads(x), bits), x.size(1)) if bits else x


# ---- beams ---------------------------------------------------------------------------------------


class BeamHistory:
    """The slots that each beam sees, as a mask ``(B, beam, slots)``: 0 where it does, else -inf.

    The decoder extends it before each step's layers and reorders it before they reorder theirs.
    """

    def __init__(self, sentences: int, beam: int, like: Tensor):
        self.beam = beam
        #: Where each sentence was before the last reorder; None if all stayed.
        self.moved: Tensor | None = None
        #: The slots ``(B, k)`` that the last reorder kept, of those before; None if it kept all.
        self.kept: Tensor | None = None
        self._mask = like.new_zeros(sentences, beam, 0)
        #: Of a step's slots, a beam sees the one that it wrote.
        self._new_slots = like.new_full((beam, beam), float("-inf")).fill_diagonal_(0)
        self._steps = 0
        #: The steps of the slots that were kept when slots were last dropped, ``(B, k)``.
        self._kept_steps = torch.zeros(sentences, 0, dtype=torch.long, device=like.device)

    @property
    def sentences(self) -> int:
        """The present number of sentences, ``B``."""
        return self._mask.size(0)

    @property
    def steps(self) -> int:
        """The number of steps, ``t``; there are ``t * beam`` slots if none were dropped."""
        return self._steps

    @property
    def mask(self) -> Tensor:
        """The mask to be added to scores: ``(B, 1, beam, slots)``."""
        return self._mask.unsqueeze(1)

    def extend(self, padding: Tensor) -> None:
        """Add the slots of a step; ``padding (rows, 1)`` is true where a row's token is padding."""
        self._mask = torch.cat([self._mask, self._new_mask(padding)], dim=2)
        self._steps += 1

    def _new_mask(self, padding: Tensor) -> Tensor:
        """The mask ``(B, beam, beam)`` of a step's slots."""
        hidden = padding.to(torch.bool).view(-1, 1, self.beam)  # (B, 1, beam)
        return self._new_slots.masked_fill(hidden, float("-inf"))

    def per_step(self, weights: Tensor) -> Tensor:
        """Turn weights by slot ``(B, ..., slots)`` into weights by step ``(B, ..., t)``."""
        steps = self._slot_steps()
        steps = steps.view(len(steps), *[1] * (weights.dim() - 2), -1).expand_as(weights)
        by_step = weights.new_zeros(*weights.shape[:-1], self._steps)
        return by_step.scatter_add(-1, steps, weights)  # a beam sees at most one slot of a step

    def _slot_steps(self) -> Tensor:
        """Return the step of each slot: ``(B, slots)``."""
        dropped_at = self._steps - (self._mask.size(2) - self._kept_steps.size(1)) // self.beam
        later = torch.arange(dropped_at, self._steps, device=self._mask.device)
        later = later.repeat_interleave(self.beam).expand(self.sentences, -1)
        return torch.cat([self._kept_steps, later], dim=1)

    def reorder(self, new_order: Tensor, sentences: Tensor | None) -> None:
        """Make row ``i`` a copy of row ``new_order[i]``, of the same sentence; drop dead slots.

        Args:
            sentences: where each sentence was before; None if all stay.
        """
        self.moved, self.kept = sentences, None
        rows = self._mask.flatten(0, 1).index_select(0, new_order)
        self._mask = rows.unflatten(0, (-1, self.beam))
        if sentences is not None:
            self._kept_steps = self._kept_steps.index_select(0, sentences)
        if self.beam > 1 and self._steps % DROP_EVERY == 0:
            kept = live_slots(self._mask)
            if self._mask.size(2) >= (1 + DROP_SHARE) * kept.size(1):
                self._keep(kept)

    def _keep(self, slots: Tensor) -> None:
        """Keep only the ``slots (B, k)``."""
        self.kept, self._kept_steps = slots, self._slot_steps().gather(1, slots)
        self._mask = self._mask.gather(2, slots.unsqueeze(1).expand(-1, self.beam, -1))

    def moved_sentences(self, new_order: Tensor) -> Tensor | None:
        """Return where each sentence was before ``new_order (rows,)``; None if all stay.

        It waits for a GPU.
        """
        before = new_order[:: self.beam].div(self.beam, rounding_mode="floor")  # (B,)
        unmoved = torch.arange(self.sentences, device=new_order.device)
        return None if torch.equal(before, unmoved) else before


def live_slots(mask: Tensor) -> Tensor:
    """Return the slots that some beam sees, in order: ``(B, k)`` of a mask ``(B, beam, slots)``.

    ``k`` is the largest number of live slots of a sentence; sentences with fewer are filled up with
    dead slots.  It waits for a GPU.
    """
    live = (mask == 0).any(1)
    order = live.byte().argsort(dim=1, descending=True, stable=True)
    return order[:, : int(live.sum(1).max())]


def beam_history(state: IncrementalState) -> BeamHistory:
    """Return the history that a decoder keeps in its incremental state.

    Raises:
        ValueError: the decoder keeps none.
    """
    if not has_beam_history(state):
        raise ValueError("the decoder keeps no beam history: it must start one before a step")
    return state[_BEAM_HISTORY]["history"]


def has_beam_history(state: IncrementalState) -> bool:
    """Return whether a decoder has made its first step."""
    return _BEAM_HISTORY in state


def start_beam_history(
    state: IncrementalState, sentences: int, rows: int, like: Tensor
) -> BeamHistory:
    """Keep a history in ``state``: ``rows`` hypotheses of ``sentences`` sentences."""
    history = BeamHistory(sentences, rows // sentences, like)
    keep_beam_history(state, history)
    return history


def keep_beam_history(state: IncrementalState, history: Any) -> None:
    """Use ``history``, a :class:`BeamHistory` or one with its methods, in the steps."""
    state[_BEAM_HISTORY] = {"history": history}


def fold_beams(x: Tensor, beam: int) -> Tensor:
    """Turn beams into query positions: ``(1, B * beam, d) -> (beam, B, d)``."""
    return x.unflatten(1, (-1, beam)).transpose(1, 2).flatten(0, 1)


def unfold_beams(x: Tensor) -> Tensor:
    """Turn query positions into beams: ``(beam, B, d) -> (1, B * beam, d)``."""
    return x.transpose(0, 1).flatten(0, 1).unsqueeze(0)
