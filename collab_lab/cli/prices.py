"""``fairseq-collab prices``: what each part of a trained model is worth, in bits."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from collab_common.errors import UserError
from collab_common.files import sha256, write_json
from collab_lab.cli import options

if TYPE_CHECKING:
    from collections.abc import Callable

    from collab_lab.conversion.converter import Converter
    from collab_lab.trained.opener import Trained

NUMBERS = "prices.json"


def build_parser() -> argparse.ArgumentParser:
    parser = options.parser_of(
        "prices",
        "Predict what every narrower key, latent, group and missing head of a trained transformer "
        "costs: the expected increase of the loss in bits per target token, from one forward and "
        "backward pass. Writes prices.json, prices.md and prices.svg.",
        "example: fairseq-collab prices average.pt data-bin --check --out prices",
    )
    options.add_checkpoint(parser, options.TRANSFORMER)
    options.add_data(parser, "that of the training")
    options.add_out(parser, "DIR", "folder of results")
    options.add_force(parser)
    options.add_pass(parser)
    parser.add_argument(
        "--check", action="store_true",
        help="build some changed models, and measure their loss on the validation set",
    )  # fmt: skip
    options.add_cpu(parser)
    options.add_user_dir(parser)
    return parser


def main(argv: Sequence[str]) -> int:
    args = build_parser().parse_args(argv)
    options.check_new(args, args.out / NUMBERS)
    options.import_models(args)
    from collab_lab.pricing.bits import head_prices
    from collab_lab.pricing.statistics import collect, samples
    from collab_lab.results import prices_page
    from collab_lab.trained import opener

    trained = opener.load(args.checkpoint, args.data)
    opener.check_transformer(trained.model, trained.path)
    trained.model.to(options.device(args))
    args.out.mkdir(parents=True, exist_ok=True)
    began = time.perf_counter()
    batches = samples(trained, args.subset, args.sentences)
    statistics = collect(trained, batches)
    converters = dict(allowed(trained, statistics))
    attentions = [
        {
            "type": one.type,
            "layer": one.layer,
            "heads": head_prices(found.pairs).tolist(),
            "sizes": {
                kind: [point._asdict() for point in converter.curve(one)]
                for kind, converter in converters.items()
            },
        }
        for one, found in statistics.items()
    ]
    content = {
        **options.made("prices", argv, args.cpu),
        "checkpoint": str(args.checkpoint),
        "checkpoint_sha256": sha256(args.checkpoint),
        "subset": args.subset,
        "sentences": sum(len(batch["target"]) for batch in batches),
        "seconds": round(time.perf_counter() - began, 1),
        "attentions": attentions,
        "checks": [],
    }
    if args.check:
        content |= checks(trained, statistics, converters)
    write_json(args.out / NUMBERS, content)
    prices_page.write(content, args.out)
    print(prices_page.summary(content))
    print(f"{args.out}: {NUMBERS}, {prices_page.NAME} and {prices_page.FIGURE}")
    return 0


def allowed(trained: Trained, statistics: Any) -> Iterator[tuple[str, Converter]]:
    """The kinds of heads that the model can be converted to."""
    from collab_lab.conversion.base import Conversion
    from collab_lab.conversion.converter import Converter, check
    from collab_lab.conversion.kinds import TARGETS
    from collab_lab.results.prices_page import KINDS
    from collab_lab.trained.attentions import attentions

    for kind in KINDS:
        how = Conversion("collab" if kind == "own" else kind)
        target = TARGETS[how.to](how)
        try:
            check(trained, target)
            for one in attentions(trained.model):
                target.check(one, trained.path)
        except UserError as error:
            print(f"{kind}: not possible ({error.what})")
        else:
            yield kind, Converter(trained, how, statistics)


def checks(trained: Trained, statistics: Any, converters: dict[str, Converter]) -> dict[str, Any]:
    """Predicted and measured loss of some changes."""
    import sys

    from collab_lab.metrics.loss import mean_bits
    from collab_lab.pricing.statistics import samples
    from collab_lab.pruning import choices, surgery

    valid = samples(trained, "valid", sys.maxsize)
    whole = mean_bits(trained.model, valid)
    found = []

    def measure(change: str, make: Callable[[], tuple[Trained, float]]) -> None:
        try:
            changed, price = make()
        except UserError as error:
            print(f"{change}: not possible ({error.what})")
        else:
            lost = mean_bits(changed.model, valid) - whole
            found.append({"change": change, "price": price, "measured": lost})

    def converted(converter: Converter, share: float) -> tuple[Trained, float]:
        model, prices = converter.model(converter.spread({"cache": share}))
        return model, sum(prices.values())

    def without_heads(number: int) -> tuple[Trained, float]:
        surgery.check_heads(trained)
        pairs = {one: each.pairs for one, each in statistics.items()}
        kept, price = choices.cheapest(trained.heads, pairs, number=number)
        return surgery.pruned(trained, kept, statistics), price

    for kind, shares in (("latent", (0.25, 0.125)), ("own", (0.625,)), ("grouped-query", (0.5,))):
        for share in shares:
            if kind in converters:
                name = f"{kind}, {share:g} of the KV cache"
                measure(name, partial(converted, converters[kind], share))
    heads = sum(map(sum, trained.heads.values()))
    for number in sorted({heads // 6, heads // 3} - {0}):
        measure(f"{number} of {heads} heads removed", partial(without_heads, number))
    return {"valid_bits": whole, "checks": found}
