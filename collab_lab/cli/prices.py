"""``fairseq-collab prices``: predict the loss from cutting each part of a trained model."""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from collab_common.errors import UserError
from collab_common.files import sha256, write_atomic, write_json
from collab_common.progress import bar
from collab_lab.cli import options
from collab_lab.statistics import STATISTICS

if TYPE_CHECKING:
    from collab_lab.shrinking.price_list import Point, Prices
    from collab_lab.trained.checkpoint import Trained

NUMBERS, PAGE = "prices.json", "prices.md"
#: What ``--check`` builds: a kind of heads, the share of a 16-bit KV cache, ``--cache-bits``.
CHECKED = (
    *(("latent", 0.25, "none"), ("latent", 0.125, "none"), ("latent", 0.125, "auto")),
    *(("collab", 0.625, "none"), ("grouped-query", 0.5, "none")),
    *(("unchanged", 1.0, "8"), ("unchanged", 1.0, "4")),
)
#: Shares of a feed-forward block's units that have a price.
NARROWER = (0.75, 0.5, 0.25)
#: Kinds of heads in ``prices.json``, and the titles of their columns.
TITLES = {
    "latent": "latent r/4",
    "collab": "shared key, own queries K/4",
    "grouped-query": "grouped query G/4",
}


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "prices",
        "Predict what narrower keys, latents, grouped queries and fewer heads would cost a trained "
        "transformer. A price is the expected increase of the loss in bits per target token; one "
        "forward and backward pass gives all of them. Write prices.json, prices.md, and "
        "statistics.pt. With --prices, the commands prune, reparametrize and shrink read these "
        "statistics and need no pass of their own.",
        "example: fairseq-collab prices average.pt data-bin --check --out prices",
    )
    options.add_model(parser)
    options.add_out(parser, "DIR", "folder for the results")
    options.add_pass(
        parser, check="also build some of the changed models and measure their validation loss"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    options.check_new(args, args.out / NUMBERS, args.out / STATISTICS)
    model = options.model(args)
    from collab_lab import prices
    from collab_lab.statistics import stored
    from collab_lab.trained.sentences import only_folder, samples
    from fairseq_collab.attention.rounding import BITS

    valid = samples(model, "valid") if args.check else []
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    priced = prices(model, subset=args.subset, sentences=args.sentences)
    for kind, reason in priced.impossible.items():
        print(f"{kind}: not possible ({reason})")
    attentions = [
        {
            "type": a.type,
            "layer": a.layer,
            "heads": priced.heads(a),
            "noises": [None if math.isnan(noise) else noise for noise in priced.noises(a)],
            "sizes": points(priced.sizes(a)),
            **{
                f"{bits} bits": points(priced.sizes(a, bits))
                for bits in BITS
                if a.type != "encoder"
            },
        }
        for a in bar("sizes", list(priced.statistics))
    ]
    content = {
        **options.provenance("prices", argv, args.cpu),
        "checkpoint": str(args.checkpoint),
        "checkpoint_sha256": sha256(args.checkpoint),
        "subset": args.subset,
        "sentences": priced.sentences,
        "seconds": round(time.perf_counter() - began, 1),
        "attentions": attentions,
        "feed_forward": [
            {
                "side": block.side,
                "layer": block.layer,
                "units": block.width,
                "prices": dict(
                    zip(map("{:g}".format, NARROWER), priced.narrower(block, NARROWER), strict=True)
                ),
            }
            for block in bar("units", list(priced.units))
        ],
        "checks": [],
        "warnings": [],
    }
    if valid:
        read = {"subset": args.subset, "sentences": args.sentences}
        content |= checks(model, priced, valid, read)
        losses = ((c["change"], c["price"], c["measured"]) for c in content["checks"])
        content["warnings"] = options.loss_warnings(args, losses)
    if (only := only_folder(model)) and args.subset == model.cfg.dataset.train_subset:
        content["warnings"].append(f"of {args.subset}, only the part in {only} was read")
    asked = stored.sentences_asked_for(model, args.subset, args.sentences)
    stored.write(priced.statistics, priced.units, priced.model, args.out, asked)
    write_json(args.out / NUMBERS, content)
    printed = summary(content)
    write_atomic(args.out / PAGE, f"# Prices of {args.checkpoint.name}\n\n{printed}\n")
    print("\n".join([printed, *content["warnings"]]))
    print(f"{args.out}: {NUMBERS}, {PAGE}, and {STATISTICS} for --prices of other commands")
    return 0


def points(curves: Mapping[str, Sequence[Point]]) -> dict[str, list[dict[str, Any]]]:
    """The points of curves by kind of heads, as plain numbers for JSON."""
    return {kind: [point._asdict() for point in curve] for kind, curve in curves.items()}


def checks(
    model: Trained, priced: Prices, valid: list[dict[str, Any]], read: dict[str, Any]
) -> dict[str, Any]:
    """The predicted and measured loss of some changes, refitted on the calibration sentences."""
    from collab_lab import prune, shrink, validation_loss

    changes: dict[str, Callable[[], Any]] = {}
    for kind, share, bits in CHECKED:
        if kind in priced.kinds:
            left = f"{share:g} of the KV cache" if share < 1 else "all numbers"
            changes[f"{kind}, {left}, bits: {bits}"] = partial(
                shrink,
                model,
                cache=share,
                kinds=[kind],
                cache_bits=bits,
                evidence=priced.evidence,
            )
    heads = sum(map(sum, model.heads.values()))
    for number in sorted({heads // 6, heads // 3} - {0}):
        changes[f"{number} of {heads} heads removed"] = partial(
            prune, model, number, statistics=priced.statistics, **read
        )
    whole, measured = validation_loss(model, valid), []
    for change, make in changes.items():
        try:
            made = make()
        except UserError as error:
            print(f"{change}: not possible ({error.problem})")
        else:
            rise = validation_loss(made.model, valid) - whole
            measured.append({"change": change, "price": made.price, "measured": rise})
    return {"valid_bits": whole, "checks": measured}


def summary(content: Mapping[str, Any]) -> str:
    """A table with a row per attention (quarters of sizes, bits, heads), and measured losses."""
    from collab_lab.results.render import TYPE_NAMES, grid, num
    from fairseq_collab.attention.rounding import BITS

    kinds = [kind for kind in TITLES if any(kind in one["sizes"] for one in content["attentions"])]
    rounded = [f"{bits}-bit KV cache" for bits in BITS]
    titles = ["attention", *(TITLES[kind] for kind in kinds)]
    rows = [
        [
            f"{TYPE_NAMES[one['type']]} {one['layer']}",
            *(num(price_at(one["sizes"].get(kind), 1 / 4), ".4f") for kind in kinds),
            *(num(price_at(one.get(f"{bits} bits", {}).get("unchanged")), ".4f") for bits in BITS),
            *(price_of_head(one, choose) for choose in (min, max)),
        ]
        for one in content["attentions"]
    ]
    lines = [
        f"Expected rise of the loss in bits per target token, from {content['sentences']} "
        f"sentences of {content['subset']}, {content['seconds']:.0f} seconds (±: standard error, "
        "from two halves of the sentences):\n",
        grid([*titles, *rounded, "cheapest head", "most expensive head"], rows),
    ]
    blocks = [
        [
            f"{one['side']} {one['layer']}",
            one["units"],
            *(num(p, ".4f") for p in one["prices"].values()),
        ]
        for one in content["feed_forward"]
    ]
    titles = ["feed-forward block", "units", *(f"{share:.0%} of them" for share in NARROWER)]
    lines += ["", grid(titles, blocks)]
    if content["checks"]:
        checks = [
            [one["change"], num(one["price"], ".4f"), num(one["measured"], ".4f")]
            for one in content["checks"]
        ]
        lines.append(f"\nBits lost on the validation set ({content['valid_bits']:.4f} before):\n")
        lines.append(grid(["change", "predicted", "measured"], checks))
    return "\n".join(lines)


def price_of_head(prices: Mapping[str, Any], choose: Callable[..., Any]) -> str:
    """The lowest or highest price of an attention's heads, with its standard error."""
    pairs = zip(prices["heads"], prices["noises"], strict=True)
    price, noise = choose(pairs, key=lambda pair: pair[0], default=(None, None))
    from collab_lab.results.render import num

    return num(price, ".4f") + ("" if noise is None else f" ± {noise:.4f}")


def price_at(curve: Any, share: float = 1) -> float | None:
    """The price at the largest size that is at most this share of the exact size."""
    fitting = [point for point in curve or () if point["size"] <= share * curve[-1]["size"]]
    return fitting[-1]["price"] if fitting else None
