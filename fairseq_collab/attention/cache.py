"""Keys and values that an attention keeps while sentences are decoded.

Shapes: ``B`` sentences, ``G`` heads of keys or of values (``H``, or 1 if all heads share one),
``S`` keys, ``e`` size of a key, ``h_v`` size of a value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from torch import Tensor

#: fairseq's: what modules keep from one step of decoding to the next, by module.
IncrementalState = dict[str, dict[str, Any]]
#: Slots for this many more steps are made at a time, or for half as many as there are, if more.
_CHUNK = 16


class Context(NamedTuple):
    """What queries attend to."""

    #: ``(B, G, S, e)``
    keys: Tensor
    #: ``(B, G, S, h_v)``
    values: Tensor
    #: See :func:`fairseq_collab.attention.scores.mask_scores`.
    mask: Tensor | None


class Cache:
    """Keys and values of one attention, and the mask of those that no later step adds to.

    Where one tensor is both (a memory), it is kept once.
    """

    def __init__(self, keys: Tensor, values: Tensor, mask: Tensor | None = None):
        self.keys, self.mask = Slots(keys), mask
        self.values = self.keys if values is keys else Slots(values)

    def context(self, mask: Tensor | None) -> Context:
        """All keys and values so far, without a copy."""
        return Context(self.keys.filled, self.values.filled, mask)

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Add the keys and values of more steps."""
        self.keys.append(keys)
        if self.values is not self.keys:
            self.values.append(values)

    def select(self, sentences: Tensor) -> None:
        """Make sentence ``i`` what sentence ``sentences[i]`` is now."""
        self.keys.select(sentences)
        if self.values is not self.keys:
            self.values.select(sentences)
        if self.mask is not None:
            self.mask = self.mask.index_select(0, sentences)


class Slots:
    """Keys or values ``(B, G, slots, e)`` that grow in place."""

    def __init__(self, first: Tensor):
        self._buffer, self._filled = first, first.size(2)

    @property
    def filled(self) -> Tensor:
        """``(B, G, slots, e)``, without a copy."""
        return self._buffer[:, :, : self._filled]

    def append(self, new: Tensor) -> None:
        """Write ``new (B, G, n, e)`` behind what is there."""
        end = self._filled + new.size(2)
        if end > self._buffer.size(2):
            spare = max(_CHUNK * new.size(2), self._filled // 2)
            larger = self._buffer.new_empty(
                *self._buffer.shape[:2], end + spare, self._buffer.size(3)
            )
            larger[:, :, : self._filled] = self.filled
            self._buffer = larger
        self._buffer[:, :, self._filled : end] = new
        self._filled = end

    def select(self, sentences: Tensor) -> None:
        """Make sentence ``i`` what sentence ``sentences[i]`` is now."""
        self._buffer = self._buffer.index_select(0, sentences)
