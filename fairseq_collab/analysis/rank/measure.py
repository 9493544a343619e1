"""Ranks and spectra of a model's heads: from its weights, and on sentences.

Each row of the result describes one matrix, or the mean over matrices of one kind.  Kinds:

    map              (d, d_y)    W_i = A_i B_i^T of one head, biases apart
    sum              (d, d_y)    W_1 + ... + W_H, the product of the concatenated projections
    stacked_queries  (d, H d_y)  [W_1, ..., W_H]: what all heads read of the queries' inputs
    stacked_keys     (H d, d_y)  [W_1; ...; W_H]: what all heads read of the keys' inputs
    logits           (T, S)      of one sentence, before mask and softmax
    logits_centred   (T, S)      the same less each row's mean, which the softmax does not see

The *length* of a sentence is ``n = min(T, S)``, in subwords with the end of sentence.  A head whose
scored vectors have ``h`` numbers gives logits of rank ``min(n, h)`` at most: where ``h < n`` there
are attention weights out of its reach (Bhojanapalli et al. 2020, arXiv 2002.07028).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad
from tqdm import tqdm

from fairseq_collab.analysis.heads.source import Loaded
from fairseq_collab.analysis.rank import spectra
from fairseq_collab.analysis.scores import factors, watched
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.checkpoints import opener
from fairseq_collab.checkpoints.attentions import Attention, attentions
from fairseq_collab.models.layers import SITES, Site

#: In place of the number of a head.
ALL_HEADS = "all"
#: Site, layer, head, kind and weights of a row.
Place = tuple[Site, int, str, str, str]


def sentences(loaded: Loaded, subset: str, number: int) -> list[dict[str, Any]]:
    """The model's inputs for ``number`` sentences, evenly spread over ``subset``, one a batch.

    Those that are longer than the model's positions are left out.

    Raises:
        UserError: no sentence is short enough.
        FileNotFoundError: fairseq's, if there is no such subset; commands report it in one line.
    """
    dataset, chosen = opener.spread(loaded, subset, number)
    return [dataset.collater([dataset[i]])["net_input"] for i in chosen]


@dataclass(frozen=True)
class Row:
    """What is measured of one head of one layer (or of all its heads), and for which lengths.

    Numbers of ``logits`` kinds are means over ``sentences``; those of weights have no lengths.

    Attributes:
        weights: ``trained``, or ``untrained`` for a fresh model of the same options.
        length: of the sentences, on average; from ``length_from`` up to ``length_to``.
        longer: how many of the sentences are longer than the head is wide.
        rows, columns: of the matrix.
        bound: the rank that its shape and the width of the heads allow.
        rank: numerical rank, see :func:`fairseq_collab.analysis.rank.spectra.numerical_rank`.
        dims90, dims95, dims99: dimensions that hold so many percent of the energy.
        norm: Frobenius norm.
        spectrum: singular values over ``norm``; over sentences, the root of their mean square.
    """

    site: Site
    layer: int
    head: str
    kind: str
    weights: str
    length_from: int | None
    length_to: int | None
    length: float | None
    sentences: int | None
    longer: int | None
    rows: float
    columns: float
    bound: float
    rank: float
    effective_rank: float
    dims90: float
    dims95: float
    dims99: float
    norm: float
    spectrum: tuple[float, ...] = field(repr=False)


def measure(
    loaded: Loaded, inputs: list[dict[str, Any]], bin_width: int, tolerance: float | None
) -> list[Row]:
    """Rows of all kinds, from the weights and from running the model on ``inputs``.

    The model is made one of double precision: rounding would pass for rank.
    """
    model = loaded.model.double()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1)
        untrained = loaded.task.build_model(loaded.cfg.model).double().eval()
    rows = weight_rows(model, tolerance) + weight_rows(untrained, tolerance, "untrained")
    found = LogitRows(model, bin_width, tolerance)
    for net_input in tqdm(inputs, desc="sentences", disable=None, leave=False):
        found.add(net_input)
    return rows + found.rows()


@dataclass(frozen=True)
class Spectrum:
    """Singular values of one matrix, its shape, and how many columns its factors have.

    Centred rows are orthogonal to ``(1, ..., 1)``, which is worth one column of the shape.
    """

    values: Tensor
    shape: tuple[int, int]
    width: int
    centred: bool = False

    @property
    def bound(self) -> int:
        rows, columns = self.shape
        return min(rows, columns - self.centred, self.width)

    def rank(self, tolerance: float | None) -> int:
        """Numerical rank.  Where large terms cancel, what rounding leaves may exceed the tolerance,
        but no rank exceeds the bound."""
        found = spectra.numerical_rank(self.values, self.shape, tolerance)
        return min(int(found), self.bound)


def weight_rows(model: Any, tolerance: float | None = None, weights: str = "trained") -> list[Row]:
    """Rows of the kinds ``map``, ``sum``, ``stacked_queries`` and ``stacked_keys``.

    The singular values of random matrices fall off, too: compare with those of an untrained model.
    """
    rows = []
    with torch.inference_mode():
        for site, layer, module, _ in attentions(model):
            a, b = (factor[:, :-1] for factor in factors(module))  # biases apart
            for head, kind, spectrum in _weight_spectra(module, a, b):
                rows.append(_row((site, layer, head, kind, weights), [spectrum], tolerance))
    return rows


def _weight_spectra(module: Any, a: Tensor, b: Tensor) -> Iterator[tuple[str, str, Spectrum]]:
    """Head, kind and spectrum of each matrix that ``A (H, d, e)`` and ``B (H, d_y, e)`` make."""
    heads, d, d_y = len(a), a.size(1), b.size(1)
    widths = spectra.used_width(a, b).tolist()
    for head, s in enumerate(spectra.map_spectrum(a, b)):
        yield str(head), "map", Spectrum(s, (d, d_y), widths[head])
    # Columns of all heads' queries and of all heads' keys; those that heads share count once.
    once = int((a.any(1) & b.any(1)).any(0).sum())
    one_query = isinstance(module, CollaborativeAttention)  # A_i = Wq^T diag(m_i)
    one_key = b.stride(0) == 0  # one matrix, seen as many
    queries, keys = (once if shared else sum(widths) for shared in (one_query, one_key))
    for kind, s, shape, width in (
        ("sum", spectra.sum_spectrum(a, b), (d, d_y), min(queries, keys)),
        ("stacked_queries", spectra.stacked_spectrum(b, a), (d, heads * d_y), queries),
        ("stacked_keys", spectra.stacked_spectrum(a, b), (heads * d, d_y), keys),
    ):
        yield ALL_HEADS, kind, Spectrum(s, shape, width)


class LogitRows:
    """Collects the logits of sentences, one at a time, and sums them up by head and length.

    Args:
        model: in eval mode, and in double precision, or else rounding passes for rank.
        bin_width: how many lengths share a row.
    """

    def __init__(self, model: Any, bin_width: int = 5, tolerance: float | None = None):
        self.model = model
        self.bin_width = bin_width
        self.tolerance = tolerance
        self._found: dict[tuple[Place, int], list[Spectrum]] = defaultdict(list)
        with torch.inference_mode():
            self._widths: dict[Attention, list[int]] = {
                attention: spectra.used_width(*factors(attention.module)).tolist()
                for attention in attentions(model)
            }

    def add(self, net_input: dict[str, Any]) -> None:
        """Run the model on one sentence without padding, teacher-forced."""
        with torch.inference_mode(), watched(self.model, self._see):
            self.model(**net_input)

    def _see(self, attention: Attention, logits: Tensor) -> None:
        """Keep the spectra of ``logits (1, H, T, S)``, without and with centring."""
        shape = (logits.size(2), logits.size(3))
        seen = {"logits": logits[0], "logits_centred": spectra.centre_rows(logits[0])}
        for kind, matrices in seen.items():
            values = torch.linalg.svdvals(matrices)  # (H, min(T, S))
            for head, width in enumerate(self._widths[attention]):
                place = (attention.site, attention.layer, str(head), kind, "trained")
                spectrum = Spectrum(values[head], shape, width, centred=kind != "logits")
                self._found[place, (min(shape) - 1) // self.bin_width].append(spectrum)

    def rows(self) -> list[Row]:
        """One row a site, layer, head, kind and bin of lengths, in this order."""

        def order(key: tuple[Place, int]) -> tuple[Any, ...]:
            (site, layer, head, kind, _), number = key
            return SITES.index(site), layer, int(head), kind, number

        rows = []
        for place, number in sorted(self._found, key=order):
            lengths = number * self.bin_width + 1, (number + 1) * self.bin_width
            rows.append(_row(place, self._found[place, number], self.tolerance, lengths))
        return rows


def _row(
    place: Place,
    found: list[Spectrum],
    tolerance: float | None,
    lengths: tuple[int, int] | None = None,
) -> Row:
    """Means over matrices of the same kind."""
    longest = max(len(one.values) for one in found)
    s = torch.stack([pad(one.values, (0, longest - len(one.values))) for one in found])  # (N, r)
    norms = torch.linalg.vector_norm(s, dim=-1)  # (N)
    unit = s / norms.clamp_min(torch.finfo(s.dtype).tiny)[:, None]
    dims90, dims95, dims99 = (_mean(spectra.energy_rank(s, n / 100)) for n in (90, 95, 99))
    return Row(
        *place,
        length_from=lengths[0] if lengths else None,
        length_to=lengths[1] if lengths else None,
        length=_mean([min(one.shape) for one in found]) if lengths else None,
        sentences=len(found) if lengths else None,
        longer=sum(min(one.shape) > one.width for one in found) if lengths else None,
        rows=_mean([one.shape[0] for one in found]),
        columns=_mean([one.shape[1] for one in found]),
        bound=_mean([one.bound for one in found]),
        rank=_mean([one.rank(tolerance) for one in found]),
        effective_rank=_mean(spectra.effective_rank(s)),
        dims90=dims90,
        dims95=dims95,
        dims99=dims99,
        norm=_mean(norms),
        spectrum=tuple(unit.square().mean(0).sqrt().tolist()),
    )


def _mean(values: Tensor | list[int]) -> float:
    return torch.as_tensor(values).double().mean().item()
