"""Steps of decoding in tensors of fixed shapes, which a GPU replays as one CUDA graph.

A small model's step waits for the launch of one kernel after the other.  A CUDA graph launches all
of them at once, with the shapes, addresses and plain numbers of the step that was captured.  So all
that changes from step to step is in tensors of fixed shapes here:

    caches   have room for P slots; a step writes keys and values to the first free ones, whose
             index is a tensor, and a mask hides the slots that are still free
    source   cross-attention has room for S tokens; a mask hides the rest
    rows     N >= B sentences; places of finished sentences stay idle, until three quarters are
    inputs   the first free slot, the last tokens, their position, and the order of the rows

P and S are multiples of :data:`BLOCK` steps and tokens, N is a power of two: one graph serves all
batches of its shape.  A batch's first step is an ordinary one, whose caches are copied.
Then the same decoder and attentions run, with caches and a beam history that keep their shapes.
Where caches are full, the slots that no beam sees are dropped; so most often, room of one shape
serves on.  That waits for the GPU, as ordinary steps do where they drop slots.
Scores equal those of ordinary steps up to rounding.

**Off by default**: its speed on a GPU was not measured.  ``FAIRSEQ_COLLAB_FIXED_STEPS=1`` turns it
on.  Without a GPU nothing is replayed, and steps take longer than ordinary ones.  A model keeps
graphs and buffers (caches of the largest batch so far) until it goes or its weights are replaced.

Shapes:
    B  sentences that are not done    N  places for sentences    beam  hypotheses per sentence
    rows  N * beam, by sentence    P  slots of beams    S  source tokens    slots  P, or S
    G  heads of keys or of values    e  their size    V  vocabulary    d  model size
    k  live slots: those that a beam sees
"""

from __future__ import annotations

import copy
import functools
import logging
import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from collab_common.errors import UserError
from fairseq_collab.attention.cache import (
    BeamHistory,
    Cache,
    IncrementalState,
    Slots,
    beam_history,
    live_slots,
)

#: The environment variable that switches fixed steps on.
FIXED_STEPS_ENV = "FAIRSEQ_COLLAB_FIXED_STEPS"
#: Buffers have room for the slots of a multiple of this number of steps, and of source tokens.
BLOCK = 64
#: Where a step's graph is captured.
GRAPHS_ON = ("cuda",)
#: In the incremental state: the embedding of a fixed step's position, ``(1, 1, d)``.
POSITION = "position"
#: Packages whose modules do the same in every step.
_KNOWN = ("fairseq_collab", "fairseq", "torch")
#: Log-probabilities ``(rows, V)`` and attention weights ``(rows, S)``, or None.
Output = tuple[Tensor, Tensor | None]
logger = logging.getLogger(__name__)


class Shape(NamedTuple):
    """The numbers N, beam, P and S of a step."""

    places: int
    beam: int
    slots: int
    source: int


# ---- a step of fixed shapes ----------------------------------------------------------------------


class FixedSlots(Slots):
    """Keys or values ``(N, G, slots, e)``; a step writes to the slots ``where (beam,)``."""

    def __init__(self, slots: Slots, buffer: Tensor, where: Tensor):
        vars(self).update(vars(slots))
        self._buffer, self._filled, self._where = buffer, buffer.size(2), where

    def append(self, steps: Tensor) -> None:
        """Write ``steps (N, G, beam, e)``."""
        self._buffer.index_copy_(2, self._where, self._stored(steps))


class FixedHistory(BeamHistory):
    """A history with ``mask (N, beam, slots)`` and the inputs ``free (1,)`` and ``order (rows,)``.

    ``free`` is the first free slot; row ``i`` continues row ``order[i]``, of the same sentence.
    """

    def __init__(self, beam: int, mask: Tensor):
        super().__init__(len(mask), beam, mask)
        self._mask = mask
        self._beams = torch.arange(beam, device=mask.device)
        self.where = self._beams.clone()
        self.free = self._beams.new_zeros(1)
        self.order = torch.arange(len(mask) * beam, device=mask.device)

    def extend(self, padding: Tensor) -> None:
        """Follow the order, then show this step's slots."""
        rows = self._mask.flatten(0, 1)
        rows.copy_(rows.index_select(0, self.order))
        self.where.copy_(self.free + self._beams)
        self._mask.index_copy_(2, self.where, self._new_mask(padding))

    def per_step(self, weights: Tensor) -> Tensor:
        """Reject the call: decoders may ask only for weights of cross-attention.

        Raises:
            ValueError: always, because the number of steps changes and shapes here do not.
        """
        raise ValueError(f"{FIXED_STEPS_ENV}=1 keeps no weights of self-attention by step")


class FixedStep:
    """The step of one :class:`Shape`, for one batch after another."""

    def __init__(self, history: FixedHistory):
        self.history = history
        self.state: IncrementalState = {}
        #: The last token of each row, ``(rows, 1)``.
        self.tokens = torch.zeros_like(history.order).unsqueeze(1)
        #: The embedding of the last token's position, ``(1, 1, d)``, if the decoder has any.
        self.position: Tensor | None = None
        self._replay: Callable[[], None] | None = None
        self._output: Any = None

    def run(self, decoding: Any, pool: Any) -> Output:
        """Return the output for the present inputs; the next run overwrites it."""
        if self.tokens.device.type not in GRAPHS_ON:
            return self._run(decoding)
        if self._replay is None:
            self._replay, self._output = self._captured(decoding, pool)
        self._replay()
        return self._output

    def _run(self, decoding: Any) -> Output:
        if self.position is not None:
            self.state[POSITION] = {"embedding": self.position}
        return decoding.step(self.tokens)

    def _captured(self, decoding: Any, pool: Any) -> tuple[Callable[[], None], Output]:
        """Return a function that replays the step, and the output that it writes."""
        order = self.history.order
        with torch.cuda.device_of(order):
            asked = order.clone()
            torch.arange(len(order), out=order)  # in a first run, which changes no order,
            side, main = torch.cuda.Stream(), torch.cuda.current_stream()
            side.wait_stream(main)
            with torch.cuda.stream(side):  # libraries allocate what they need
                self._run(decoding)
            main.wait_stream(side)
            order.copy_(asked)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool, capture_error_mode="thread_local"):
                output = self._run(decoding)
        return graph.replay, output


class Buffers:
    """The steps of a model, and the memory that all of them share."""

    def __init__(self, made_for: Any):
        self.made_for = made_for  # see _made_for
        self.pool: Any = None  # torch's name of the memory for what graphs compute
        self._steps: dict[Shape, FixedStep] = {}
        self.memory: dict[str, Tensor] = {}

    def step(self, shape: Shape, decoding: Any, sentences: Tensor, slots: Tensor) -> FixedStep:
        """Return the step of a shape, with the caches of a decoding, which gets the step's state.

        The first places of the step have the ``sentences (B,)`` of the decoding, with their ``slots
        (B, k)``.
        """
        old, decoding.state = decoding.state.copy(), {}  # emptied below: memory is freed on the way
        places, beam, room, _ = shape
        mask = beam_history(old).mask[:, 0].index_select(0, sentences)
        mask = mask.gather(2, slots.unsqueeze(1).expand(-1, beam, -1))
        mask = self._filled("history", (places, beam, room), mask, float("-inf"))
        step = self._steps.get(shape) or FixedStep(FixedHistory(beam, mask))
        decoder = decoding.model.decoder
        if decoder.embed_positions is not None:
            words = sentences.new_full((1, 1), decoder.padding_idx + 1)  # which is no padding
            first = decoder.embed_positions(words)
            step.position = self._filled("position", (1, 1, first.size(2)), first)
        for name in [*old]:
            entry = old.pop(name)
            if "history" in entry:
                step.state[name] = {"history": step.history}
            elif "cache" in entry:
                cache = self._fixed(name, entry["cache"], sentences, slots, shape, step.history)
                step.state[name] = {"cache": cache}
        self._steps[shape] = step
        decoding.state = step.state
        return step

    def _fixed(
        self, name: str, cache: Cache, sentences: Tensor, slots: Tensor, shape: Shape, history: Any
    ) -> Cache:
        """Return a copy of a cache in buffers."""
        fixed, room = copy.copy(cache), shape.source if cache.is_source else shape.slots
        if cache.is_source:
            assert cache.mask is not None, "fairseq's encoder gives one without padding, too"
            mask = cache.mask.index_select(0, sentences)
            fixed.mask = self._filled(f"{name} mask", (shape.places, 1, 1, room), mask, True)
            fixed.mask[len(mask) :] = False  # idle sentences attend to zeros
        parts: dict[Slots, FixedSlots] = {}  # one, where one tensor is both
        for part in (cache.keys, cache.values):
            if part not in parts:
                kept = copy.copy(part)
                kept.select(sentences)
                if not cache.is_source:
                    kept.keep(slots)
                values = kept.filled
                sizes = (shape.places, values.size(1), room, values.size(3))
                buffer = self._filled(f"{name} {len(parts)}", sizes, values)
                parts[part] = FixedSlots(part, buffer, history.where)
        fixed.keys, fixed.values = parts[cache.keys], parts[cache.values]
        return fixed

    def _filled(self, name: str, sizes: tuple[int, ...], values: Tensor, rest: float = 0) -> Tensor:
        """Return the memory of a name in some sizes: ``values`` first, ``rest`` beyond them."""
        number = math.prod(sizes)
        if name not in self.memory or len(self.memory[name]) < number:
            self._steps.clear()  # they use what is replaced
            self.pool = torch.cuda.graph_pool_handle() if values.is_cuda else None
            self.memory[name] = values.new_empty(number)
        buffer = self.memory[name][:number].view(sizes).fill_(rest)
        buffer[tuple(map(slice, values.shape))] = values
        return buffer


# ---- instead of ordinary steps -------------------------------------------------------------------


class FixedDecoding:
    """Decodes a batch in fixed shapes.

    It does what ``decoding``, a ``ModelDecoding``, does, which also makes the first step.
    """

    def __init__(self, decoding: Any, buffers: Buffers):
        self._decoding, self._buffers = decoding, buffers
        encoded = decoding.encoder_out["encoder_out"][0]  # (S, B, d)
        self._source = len(encoded)
        #: The places of the search's sentences, ``(B,)``; the beams they continue, ``(B, beam)``.
        self._places = self._beams = torch.arange(encoded.size(1), device=encoded.device)
        self._shape = Shape(0, 0, 0, 0)
        self._step: FixedStep | None = None
        #: Slots in use; embeddings of positions, ``(t, d)``, if the decoder has any.
        self._filled = 0
        self._positions: Tensor | None = None

    def step(self, tokens: Tensor) -> Output:
        """Continue ``tokens (B * beam, t)``, as ``ModelDecoding.step`` does."""
        steps = tokens.size(1)
        if steps == 1:
            self._filled = len(tokens) // len(self._places)
            return self._decoding.step(tokens)
        is_full = self._filled + self._beams.size(1) > self._shape.slots
        if is_full or 4 * len(self._places) <= self._shape.places:
            self._move(drop=is_full)
        assert self._step is not None
        step, beam, places = self._step, self._shape.beam, self._places
        order = places.unsqueeze(1) * beam + self._beams
        step.history.order.view(-1, beam).index_copy_(0, places, order)
        step.tokens.view(-1, beam).index_copy_(0, places, tokens[:, -1].view(-1, beam))
        step.history.free.fill_(self._filled)
        self._filled += beam
        if step.position is not None:
            step.position.copy_(self._position(steps))
        # Copies of the rows of these sentences: the search changes and keeps what it gets.
        log_probs, attention = (
            None if x is None else x.unflatten(0, (-1, beam)).index_select(0, places).flatten(0, 1)
            for x in step.run(self._decoding, self._buffers.pool)
        )
        assert log_probs is not None
        return log_probs, None if attention is None else attention[:, : self._source]

    def _position(self, steps: int) -> Tensor:
        """Return the embedding ``(d,)`` of the last of ``steps`` positions."""
        if self._positions is None or len(self._positions) < steps:
            decoder = self._decoding.model.decoder
            number = min(-(-steps // BLOCK) * BLOCK, decoder.max_positions())
            words = self._places.new_full((1, number), decoder.padding_idx + 1)  # none is padding
            self._positions = decoder.embed_positions(words)[0]
        return self._positions[steps - 1]

    def reorder(self, rows: Tensor, sentences: Tensor | None) -> None:
        """Reorder the rows, as ``ModelDecoding.reorder`` does; the next step follows the order."""
        if sentences is not None:
            self._places = self._places.index_select(0, sentences)
        beams = rows.unflatten(0, (len(self._places), -1))
        self._beams = beams % beams.size(1)

    def _move(self, drop: bool) -> None:
        """Move to a shape with room for half a block of steps or more.

        There, fewer than half of all places are idle.

        Args:
            drop: drop the slots that no beam sees, which waits for a GPU.
        """
        (sentences, beam), decoding = self._beams.shape, self._decoding
        slots = torch.arange(self._filled, device=self._places.device).expand(sentences, -1)
        if drop and self._filled > beam > 1:
            slots = live_slots(self._mask())
        self._filled, block = slots.size(1), BLOCK * beam
        room = -(-(self._filled + block // 2) // block) * block
        source = -(-self._source // BLOCK) * BLOCK
        self._shape = Shape(1 << (sentences - 1).bit_length(), beam, room, source)
        self._step = None  # may be freed
        self._step = self._buffers.step(self._shape, decoding, self._places, slots)
        # The caches have its padding.
        decoding.encoder_out = {**decoding.encoder_out, "encoder_padding_mask": []}
        self._places = torch.arange(sentences, device=self._places.device)

    def _mask(self) -> Tensor:
        """Return the slots that each beam will see in the next step: ``(B, beam, slots)``."""
        mask = beam_history(self._decoding.state).mask[:, 0, :, : self._filled]
        mask = mask.index_select(0, self._places)
        return mask.gather(1, self._beams.unsqueeze(2).expand_as(mask))


#: The buffers of models, between searches.
BUFFERS: WeakKeyDictionary[nn.Module, Buffers] = WeakKeyDictionary()


@contextmanager
def in_fixed_shapes(decoding: Any) -> Iterator[Any]:
    """Yield a :class:`FixedDecoding` for a ``ModelDecoding``, if it is asked for and possible.

    Raises:
        UserError: the environment variable has an unknown value.
    """
    if not is_requested() or explain(_obstacle(decoding.model)):
        yield decoding
        return
    # Taken out: a search in another thread makes others, and after an error there are none.
    buffers, made_for = BUFFERS.pop(decoding.model, None), _made_for(decoding)
    if buffers is None or buffers.made_for != made_for:
        buffers = Buffers(made_for)
    yield FixedDecoding(decoding, buffers)
    BUFFERS[decoding.model] = buffers


def is_requested() -> bool:
    """Return whether the environment asks for fixed steps.

    Raises:
        UserError: the environment variable has an unknown value.
    """
    value = os.environ.get(FIXED_STEPS_ENV) or "0"
    if value not in ("0", "1"):
        raise UserError(f"is {value!r}", FIXED_STEPS_ENV, "set it to 1 or 0, or unset it")
    return value == "1"


@functools.cache  # each once
def explain(obstacle: str) -> bool:
    """Warn once of an obstacle to fixed steps, if there is one; return whether there is one."""
    if obstacle:
        logger.warning("%s=1 has no effect: %s", FIXED_STEPS_ENV, obstacle)
    return bool(obstacle)


def _obstacle(model: nn.Module) -> str:
    """Return why a graph could leave out a part of a step; "" if it cannot."""
    for module in model.modules():
        kind = type(module)
        if kind.__module__.partition(".")[0] not in _KNOWN:
            return f"{kind.__qualname__} is not of {', '.join(_KNOWN)}"
        if module._forward_hooks or module._forward_pre_hooks or "forward" in vars(module):
            return f"a {kind.__qualname__} has hooks"
    device = next(model.parameters()).device.type
    return "autocast is on" if torch.is_autocast_enabled(device) else ""


def _made_for(decoding: Any) -> Any:
    """Return what a graph fixes when it is captured, as far as it changes in use.

    These are addresses of weights, bits of caches and the temperature; numbers such as the scale of
    the scores are fixed when a model is built.
    """
    weights = (*decoding.model.decoder.parameters(), *decoding.model.decoder.buffers())
    return (
        [(weight.data_ptr(), weight.shape, weight.dtype, weight.device) for weight in weights],
        [getattr(module, "cache_bits", 0) for module in decoding.attentions],
        decoding.temperature,
        torch.is_inference_mode_enabled(),
    )
