"""One latent of the encoder's output for all cross-attentions, in double precision."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch
import toy
from parity.test_convert import squared_error
from toy import close
from toy_reparametrize import Conversions, batch, inputs, trained

from collab_lab.clock.lengths import cache_bytes
from collab_lab.mathematics.priced_attention import PricedAttention
from collab_lab.mathematics.shared_projection import WeightedMaps, one_latent
from collab_lab.metrics.cost import cost, totals
from collab_lab.shrinking.cuts.latent import Latent
from collab_lab.shrinking.knapsack import Together, cheapest
from collab_lab.shrinking.planner import Option
from collab_lab.shrinking.shape import Shape
from collab_lab.statistics.moments import collect
from collab_lab.trained.attentions import attentions
from fairseq_collab.attention import SeparateAttention
from fairseq_collab.attention.shared_latent import SharedLatentAttention

pytestmark = pytest.mark.usefixtures("float64")

LAYERS, D = 3, 16
#: Widths of the latent: the encoder's output itself, and a projection of it.
WIDTHS = (D, 6)


def model(width: int, **options: Any) -> Any:
    """A translation model of three layers with random weights."""
    options |= {"dropout": 0.0, "decoder_layers": LAYERS, "shared_latent_in_cross": width}
    return toy.randomised(toy.model("transformer_latent", **options), 0.3).eval()


def crossing(found: Any) -> list[Any]:
    return [layer.encoder_attn for layer in found.decoder.layers]


@pytest.mark.parametrize("width", WIDTHS)
def test_it_is_a_latent_of_its_own_in_each_layer(width: int) -> None:
    """With equal projections; that of the encoder's output is the identity."""
    shared = model(width)
    own = toy.model("transformer_latent", dropout=0.0, decoder_layers=LAYERS,
                    latent_dim_in_cross=str(width)).eval()  # fmt: skip
    weights = {n: w for n, w in shared.state_dict().items() if not n.endswith("attn.signature")}
    if width == D:
        for layer in range(LAYERS):
            name = f"decoder.layers.{layer}.encoder_attn.latent_proj"
            weights |= {f"{name}.weight": torch.eye(D), f"{name}.bias": torch.zeros(D)}
    signatures = {n: w for n, w in own.state_dict().items() if n.endswith("attn.signature")}
    own.load_state_dict({**weights, **signatures})
    close(shared(**toy.batch())[0], own(**toy.batch())[0])


def test_one_projection_is_trained_and_saved() -> None:
    """Each layer adds to its gradient; a copy of the model shares its own."""
    found = model(6)
    first, *others = (attention.latent_proj.weight for attention in crossing(found))
    assert all(weight is first for weight in others)
    names = [name for name, _ in found.named_parameters() if "encoder_attn.latent_proj" in name]
    assert len(names) == 2, "its weight and bias once"
    other = model(6)
    other.load_state_dict(found.state_dict())
    close(other(**toy.batch())[0], found(**toy.batch())[0])
    assert not any(
        "latent_proj" in name for name in model(D).state_dict() if "encoder_attn" in name
    )


@pytest.mark.parametrize("bits", [0, 8, 4])
@pytest.mark.parametrize("width", WIDTHS)
def test_step_by_step_equals_all_at_once(width: int, bits: int) -> None:
    """Beams move, sentences leave; one copy of a sentence is kept, and moved once."""
    torch.manual_seed(width + bits)
    found, batch, beam = model(width, cache_bits=str(bits)), toy.batch(), 2
    encoded = found.encoder(batch["src_tokens"], batch["src_lengths"])
    (source,), (padding,) = encoded["encoder_out"], encoded["encoder_padding_mask"]
    present, state = torch.arange(3), dict[str, Any]()
    history = torch.randint(4, 24, (3 * beam, 1))
    for left in ([0, 1, 2], [2, 1], [1, 0], [1]):
        logits, _ = found.decoder(history, encoder_out=encoded, incremental_state=state)
        rows = present.repeat_interleave(beam)
        tiled = {"encoder_out": [source[:, rows]], "encoder_padding_mask": [padding[rows]]}
        whole, _ = found.decoder(history, encoder_out=tiled)
        close(logits[:, -1], whole[:, -1])

        caches = [entry["cache"] for entry in state.values() if "cache" in entry]
        (of_source,) = [cache for cache in caches if cache.mask is not None]
        assert len(caches) == LAYERS + 1
        if bits:
            per_token = cost(found).key_bytes_per_source_token
            assert of_source.keys.filled.nbytes == len(present) * len(source) * per_token

        order = (torch.tensor(left) * beam)[:, None] + torch.randint(beam, (len(left), beam))
        found.decoder.reorder_incremental_state_scripting(state, order.flatten())
        history = history[order.flatten()]
        history = torch.cat([history, torch.randint(4, 24, (len(history), 1))], dim=1)
        present = present[left]


def test_the_cache_of_all_layers_is_one() -> None:
    """Its bytes do not depend on the number of layers; unrounded, it is no copy."""
    found = model(D)
    encoded = found.encoder(toy.batch()["src_tokens"], toy.batch()["src_lengths"])
    state: dict[str, Any] = {}
    found.decoder(torch.full((3, 1), 2), encoder_out=encoded, incremental_state=state)
    keys = [attention._cache(state).keys for attention in crossing(found)]
    assert all(slots is keys[0] for slots in keys)
    (source,) = encoded["encoder_out"]
    assert keys[0].filled.data_ptr() == source.data_ptr()
    assert cache_bytes([keys]) == source.nbytes


def test_layers_without_heads_do_not_share() -> None:
    found = model(D, heads_in_cross="0,4,4")
    first, *others = crossing(found)
    assert not isinstance(first, SharedLatentAttention)
    assert [one.cached_floats_per_token() for one in others] == [(D, 0), (0, 0)]
    assert cost(found).key_bytes_per_source_token == 2 * D


def test_a_normalised_latent_is_shared_with_its_norm() -> None:
    first, *others = crossing(model(6, latent_norm=True))
    assert first.latent_norm is not None
    assert all(one.latent_norm is first.latent_norm for one in others)


# ---- converted -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arch", "options"),
    [
        ("transformer", {}),
        ("transformer_headsize_n", {"qk_head_size": 3, "heads_in_cross": "2,4"}),
        ("transformer", {"encoder_embed_dim": 8, "encoder_attention_heads": 2}),
    ],
)
def test_at_full_width_nothing_is_lost(arch: str, options: dict[str, Any]) -> None:
    """The latent is the encoder's output itself; other attentions stay as they are."""
    source = trained(arch, None, **options)
    work = Conversions(source, Latent(), None)
    width = work.crossing[0].module.kdim
    result, prices = work.convert(dict.fromkeys(work.crossing, width), shared=True)
    expected, found = (one.model(**inputs(source))[0] for one in (source, result))
    assert (expected - found).abs().max() < 1e-8
    assert max(prices.values()) < 1e-9
    assert isinstance(result.attentions["decoder"][0].module, SeparateAttention)
    per_token = cost(result.model)
    assert per_token.key_bytes_per_source_token == 2 * width
    assert per_token.value_bytes_per_source_token == 0
    assert totals(result.task.build_model(result.cfg.model)) == totals(result.model)


def test_one_projection_of_two_layers_loses_more_than_two() -> None:
    """The sum of the layers' prices; of all projections, it is next to the best."""
    source = trained("transformer", None)
    work = Conversions(source, Latent(), None)
    size = 6
    sizes = dict.fromkeys(work.crossing, size)
    (own, prices), (one, shared) = work.convert(sizes), work.convert(sizes, shared=True)
    assert sum(shared.values()) > sum(prices.values()) > 0
    random = [torch.linalg.qr(torch.randn(D, size)).Q for _ in range(20)]
    parts = [
        kind(part.maps, part.statistics)
        for part in map(work.attentions.get, work.crossing)
        for kind in (WeightedMaps.keys, WeightedMaps.values)
    ]
    bits = 2 * math.log(2)
    assert sum(shared.values()) < min(squared_error(parts, down) for down in random) / bits
    measured = [(part.maps, part.statistics) for part in map(work.attentions.get, work.crossing)]
    best = squared_error(parts, one_latent(measured, size)[0]) / bits
    assert sum(shared.values()) == pytest.approx(best)
    assert totals(one.model)["parameters"] == totals(own.model)["parameters"] - size * (D + 1)


@pytest.mark.parametrize("width", WIDTHS)
def test_the_price_of_rounding_is_that_of_the_model(width: int) -> None:
    """Before it is built, and of the model itself, whose errors both layers see."""
    source = trained("transformer", None)
    statistics = collect(source, [batch(source)])
    work = Conversions(source, Latent(), statistics)
    sizes = dict.fromkeys(work.crossing, width)
    (model, plain), (_, priced) = (
        work.convert(sizes, dict.fromkeys(sizes, bits), shared=True) for bits in (0, 4)
    )
    found = {a: a for a in attentions(model.model)}
    for attention in work.crossing:
        of_it = PricedAttention(found[attention].module, statistics[attention])
        expected = priced[attention] - plain[attention]
        assert expected > 0
        assert of_it.rounding_price(None, 4) == pytest.approx(expected, rel=1e-6)


def squares(curves: dict[Any, list[Any]]) -> list[tuple[Any, ...]]:
    """All choices in which one copy, or none, is shared."""
    every = itertools.product(*curves.values())
    copies = [[p for p in of if copy_of(p)] for of in curves.values()]
    sharing = [i for i, of in enumerate(copies) if of]
    return [
        chosen for chosen in every if len({copy_of(p) for p in (chosen[i] for i in sharing)}) == 1
    ]


def copy_of(option: Option) -> tuple[int, int] | None:
    """The size and the bits of a copy."""
    return option.shape.shared


def choice(size: int, cache: int, price: float, bits: int = 0, copy: Any = "") -> Option:
    """An option that costs nothing but cache."""
    return Option(Shape((0,), size=size, bits=bits, copy=copy), price, cache, 0, 1)


def test_the_cheapest_choice_with_one_copy() -> None:
    """Against all choices: curves that share take the same copy, or none of them takes one."""
    chance = torch.Generator().manual_seed(4)

    def numbers(n: int) -> list[float]:
        return torch.rand(n, generator=chance).tolist()

    for _ in range(20):
        curves = {"self": [choice(i, 9 - i, p) for i, p in enumerate(sorted(numbers(4)))]}
        for name, cache in (("first", 4), ("second", 0), ("third", 0)):
            own = [choice(i, 6 - 2 * i, p) for i, p in enumerate(sorted(numbers(3)))]
            copies = [
                choice(size, cache * size, p, bits, "kept" if cache else "read")
                for (size, bits), p in zip(
                    itertools.product((1, 2), (0, 4)), numbers(4), strict=True
                )
            ]
            curves[name] = [*own, *copies]
        names = [*curves][1:]
        for budget in (6, 10, 14, 30):
            allowed = [c for c in squares(curves) if sum(p.cache for p in c) <= budget]
            found = cheapest(curves, {"cache": budget}, [Together(names, copy_of)])
            if found is None:
                assert not allowed
                continue
            best = min(sum(p.price for p in chosen) for chosen in allowed)
            assert sum(p.price for p in found.values()) == pytest.approx(best)
            assert tuple(found.values()) in allowed
