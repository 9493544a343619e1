"""The table of who sees what, and caches that grow in place."""

from __future__ import annotations

import pytest
import torch

from fairseq_collab.attention.cache import BeamHistory, Slots, as_cached

HIDDEN = float("-inf")


def test_a_beam_sees_the_slots_of_those_it_descends_from() -> None:
    history, no_padding = BeamHistory(1, 2, torch.empty(0)), torch.zeros(2, 1)
    history.extend(no_padding)
    assert history.mask.tolist() == [[[[0, HIDDEN], [HIDDEN, 0]]]]
    history.reorder(torch.tensor([1, 1]), None)  # both continue the second
    history.extend(no_padding)
    assert history.mask.tolist() == [[[[HIDDEN, 0, 0, HIDDEN], [HIDDEN, 0, HIDDEN, 0]]]]
    weights = torch.tensor([[0, 0.25, 0.75, 0], [0, 0.5, 0, 0.5]])
    assert history.per_step(weights).tolist() == [[0.25, 0.75], [0.5, 0.5]]


def test_padding_is_hidden_from_all_later_steps() -> None:
    history = BeamHistory(1, 1, torch.empty(0))
    for padding in (False, True, False):
        history.extend(torch.tensor([[padding]]))
    assert history.mask.tolist() == [[[[0, HIDDEN, 0]]]]


@pytest.mark.parametrize(
    ("order", "before"),
    [([1, 0, 3, 3], None), ([3, 2], [1]), ([2, 2, 0, 1], [1, 0])],
    ids=["all stay", "one leaves", "they change places"],
)
def test_sentences_that_leave_or_move(order: list[int], before: list[int] | None) -> None:
    moved = BeamHistory(2, 2, torch.empty(0)).moved_sentences(torch.tensor(order))
    assert (None if moved is None else moved.tolist()) == before


@pytest.mark.parametrize("bits", [0, 8, 4])
def test_slots_grow_in_place(bits: int) -> None:
    first = torch.randn(2, 3, 1, 4)
    slots, expected = Slots(first, bits), as_cached(first, bits)
    for step in range(50):
        new = torch.randn(slots.filled.size(0), 3, 2, 4)
        before = slots.filled.data_ptr()
        slots.append(new)
        expected = torch.cat([expected, as_cached(new, bits)], dim=2)
        assert torch.equal(slots.numbers(), expected)
        if 1 <= step < 17:
            assert slots.filled.data_ptr() == before, "there was room"
        if step == 20:
            slots.select(torch.tensor([1]))
            expected = expected[[1]]
            assert torch.equal(slots.numbers(), expected)
