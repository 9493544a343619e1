"""Groups of heads: k-means and cosines in the space of Gram matrices, against the naive way."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from collab_lab.pruning import votes
from fairseq_collab.criterions import clusters

pytestmark = pytest.mark.usefixtures("float64")

TOLERANCE = 1e-10


def features(layers: int, heads: int, size: int = 30) -> Tensor:
    """Random features ``(L, H, D)``, flattened."""
    return torch.randn(layers, heads, size)


def gram_of(flat: Tensor) -> Tensor:
    return flat @ flat.transpose(1, 2)


def one_hot(labels: list[list[int]], classes: int) -> Tensor:
    return functional.one_hot(torch.tensor(labels), classes).double()


def centres(flat: Tensor, labels: list[int], classes: int) -> list[Tensor]:
    """The means of one attention's groups."""
    return [
        torch.stack([f for f, label in zip(flat, labels, strict=True) if label == c]).mean(dim=0)
        for c in range(classes)
    ]


def naive_loss(
    flat: Tensor, labels: list[list[int]], classes: int, alpha: float, beta: float
) -> Tensor:
    """Lz of arXiv 2305.14380 as written, with the sign that its text means, head by head."""
    total = flat.new_zeros(())
    layers, heads, _ = flat.shape
    for layer, own in zip(flat, labels, strict=True):
        middle = centres(layer, own, classes)
        for feature, label in zip(layer, own, strict=True):
            cosine = functional.cosine_similarity(feature, middle[label], dim=0)
            total = total - alpha / (heads * layers) * cosine
        pairs = list(itertools.combinations(middle, 2))
        for one, other in pairs:
            cosine = functional.cosine_similarity(one, other, dim=0)
            total = total + beta / (len(pairs) * layers) * cosine
    return total


LABELS = {
    "some groups": [[0, 0, 1, 2, 1], [2, 1, 0, 0, 2]],
    "one group, which has no pairs": [[0] * 5] * 2,
    "a head a group": [[0, 1, 2, 3, 4], [4, 2, 0, 3, 1]],
}


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_loss_and_gradient_equal_the_naive_ones(labels: list[list[int]]) -> None:
    flat, classes = features(2, 5), max(labels[0]) + 1
    naive_input = flat.clone().requires_grad_()
    naive = naive_loss(naive_input, labels, classes, 0.7, 0.3)
    naive.backward()
    fast_input = flat.clone().requires_grad_()
    within, between = clusters.similarity(gram_of(fast_input), one_hot(labels, classes))
    fast = 0.3 * between.mean() - 0.7 * within.mean()
    fast.backward()
    torch.testing.assert_close(fast, naive, rtol=0, atol=TOLERANCE)
    torch.testing.assert_close(fast_input.grad, naive_input.grad, rtol=0, atol=TOLERANCE)


def test_a_head_of_zeros_has_no_gradient_and_no_nan() -> None:
    flat = features(1, 3)
    flat[0, 1] = 0
    flat.requires_grad_()
    within, between = clusters.similarity(gram_of(flat), one_hot([[0, 1, 0]], 2))
    (within + between).sum().backward()
    assert within.isfinite().all()
    assert flat.grad.isfinite().all()


# ---- features ------------------------------------------------------------------------------------


def test_padding_counts_for_nothing_whatever_it_holds() -> None:
    maps = torch.randn(2, 3, 4, 5)
    padding = torch.tensor([[False, False, True, True], [True, False, False, False]])
    kept = maps.transpose(1, 2)[~padding].transpose(0, 1).flatten(1)  # (H, positions * e)
    spoilt = maps.masked_fill(padding[:, None, :, None], 1e4)
    torch.testing.assert_close(clusters.gram_matrix(spoilt, padding), kept @ kept.T)


def test_half_precision_does_not_overflow() -> None:
    maps = torch.full((2, 2, 100, 64), 30.0, dtype=torch.float16)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        gram = clusters.gram_matrix(maps)
    assert gram.dtype == torch.float32
    assert gram.tolist() == [[2 * 100 * 64 * 900.0] * 2] * 2


# ---- k-means -------------------------------------------------------------------------------------


def test_groups_equal_those_of_naive_k_means() -> None:
    flat = features(20, 8, size=3)
    start = [[i % 3 for i in range(8)]] * 20
    found = clusters.cluster(gram_of(flat), one_hot(start, 3), iterations=4).argmax(dim=2)
    compared = 0
    for layer, labels in zip(flat, found.tolist(), strict=True):
        current = start[0]
        for _ in range(4):
            middle = torch.stack(centres(layer, current, 3))
            current = torch.cdist(layer, middle).argmin(dim=1).tolist()
            if len(set(current)) < 3:
                break
        else:
            compared += 1
            assert labels == current
    assert compared >= 10  # the others met an empty group


def test_an_update_has_as_many_steps_as_most_attentions_need() -> None:
    """From groups that are far off; one step alone reaches the end in few."""
    gram, start = gram_of(features(40, 16, size=3)), one_hot([[i % 4 for i in range(16)]] * 40, 4)
    end = clusters.cluster(gram, start, iterations=50)

    def reached(found: torch.Tensor) -> int:
        return int((found == end).all(dim=(1, 2)).sum())

    assert reached(clusters.cluster(gram, start)) >= 38
    assert reached(clusters.cluster(gram, start, iterations=1)) < 20


def test_clear_groups_are_found_from_nothing() -> None:
    """Three bundles of heads, in another order in each attention."""
    bundles = torch.eye(3).repeat_interleave(3, dim=0)  # (9, 3)
    orders = torch.stack([torch.randperm(9) for _ in range(5)])
    flat = 10 * bundles[orders] + 0.01 * torch.randn(5, 9, 3)
    found = clusters.cluster(gram_of(flat), torch.zeros(5, 9, 3))
    same = found @ found.transpose(1, 2)
    expected = bundles[orders] @ bundles[orders].transpose(1, 2)
    assert torch.equal(same, expected)


def test_each_first_head_is_far_from_all_before_it() -> None:
    """Heads on a line: 10.5 is the farthest from the mean, then 0 from that, then 5 from both."""
    positions = torch.tensor([[[0.0], [1.0], [5.0], [9.0], [10.5]]])
    groups = clusters.first_groups(gram_of(positions), 3)
    assert groups.argmax(dim=2).tolist() == [[1, 1, 2, 0, 0]]


@pytest.mark.parametrize("classes", [2, 4, 8])
def test_no_group_is_ever_empty(classes: int) -> None:
    """From a start with all heads in one group, with distinct heads and with equal ones."""
    flat = torch.cat([features(10, 8, size=2), torch.ones(1, 8, 2), torch.zeros(1, 8, 2)])
    start = one_hot([[classes - 1] * 8] * 12, classes)
    found = clusters.cluster(gram_of(flat), start, iterations=10)
    assert found.sum(dim=1).min() >= 1
    assert (found.sum(dim=2) == 1).all()


def test_filling_moves_the_farthest_heads_and_leaves_the_nearest() -> None:
    positions = torch.tensor([[[0.0], [1.0], [5.0], [9.0]]])
    filled = clusters.fill_empty(gram_of(positions), one_hot([[0, 0, 0, 0]], 3))
    # The centre is 3.75: head 2 is nearest and stays, heads 3 and 0 are farthest and leave.
    assert filled.argmax(dim=2).tolist() == [[2, 0, 0, 1]]


# ---- stability, names, votes ---------------------------------------------------------------------


def test_groups_keep_their_numbers() -> None:
    reference = one_hot([[0, 0, 1, 1, 2, 2]], 3)
    renamed = one_hot([[2, 2, 0, 0, 1, 0]], 3)  # 2 is 0, 0 is 1, 1 is 2; the last head moved
    assert votes.match(renamed, reference).argmax(dim=2).tolist() == [[0, 0, 1, 1, 2, 1]]


def test_the_typical_head_of_a_pair_is_the_longer_one() -> None:
    """The larger cosine with the mean of two vectors is that of the longer; distances are equal."""
    flat = features(200, 2)
    flat[:100, 0] *= 3
    flat[100:, 1] *= 3
    found = votes.typical_heads(gram_of(flat), torch.ones(200, 2, 1))
    assert found.squeeze(1).tolist() == [0] * 100 + [1] * 100
