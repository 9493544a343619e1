"""Convert a trained model to latents with a quarter of its KV cache; prune a third of its heads.

    python examples/convert.py my-model/checkpoint_last.pt DATA OUT

Neither is trained.  The model has standard or separate heads.
"""

import sys
from pathlib import Path

from collab_lab import convert, open_model, prices, prune, validation_loss


def main(checkpoint, data, out):
    model = open_model(checkpoint, data)
    before, statistics = validation_loss(model), prices(model).statistics
    heads = sum(map(sum, model.heads.values()))
    # A cache of 8 or 4 bits is cheaper still; CTranslate2 has none, and export.py goes there.
    quarter = {"cache": 0.25, "cache_bits": None}
    changed = {
        "latent": convert(model, "latent", **quarter, statistics=statistics),
        "pruned": prune(model, heads // 3, statistics=statistics),
    }
    Path(out).mkdir(parents=True, exist_ok=True)
    for name, result in changed.items():
        result.model.save(Path(out) / f"{name}.pt")
        bits = validation_loss(result.model) - before
        print(
            f"{name}.pt: {result.price:+.4f} bits per target token predicted, {bits:+.4f} measured"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
