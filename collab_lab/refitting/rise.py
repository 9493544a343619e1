"""The measured rise of the loss on the calibration sentences, to compare with the price.

A price is a prediction to second order.  It is too low where few words were read, where few words
have most of the activations, and for large changes.  So each change is measured as soon as it is
made.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import torch
from torch import Tensor

from collab_common.progress import say
from collab_lab.metrics.loss import mean_bits, predicted, read_by_decoder
from collab_lab.refitting.refit import blocks, sides
from collab_lab.statistics.moments import FEW
from collab_lab.trained.attentions import attentions
from collab_lab.trained.checkpoint import Trained
from collab_lab.trained.contexts import in_evaluation

#: Explain a rise above ``FAR`` times the price, if it matters: 0.01 bits are about 0.1 BLEU.
FAR, LEAST = 3, 0.01
#: A rise in bits that most models cannot bear, whatever its price.
RUIN = 0.3
#: A word with more times the median word's activations is one to name.
MASSIVE = 10


def measured_rise(
    changed: Trained,
    trained: Trained,
    batches: Sequence[Mapping[str, Any]],
    price: float | None = None,
    *,
    before: float | None = None,
    after: float | None = None,
) -> float:
    """The rise of the loss on ``batches`` in bits per target token.

    A line says why a rise may be far above its price, and where it is large.

    Args:
        price: predicted rise; None where nothing was predicted.
        before, after: loss of ``trained`` and of ``changed``, where they are known.
    """
    before = mean_bits(trained.model, batches) if before is None else before
    after = mean_bits(changed.model, batches) if after is None else after
    rise = after - before
    if price is not None and not rise <= max(FAR * price, LEAST):
        reasons = "; ".join(causes(changed, trained, batches)) or (
            "no cause is seen: prices are too low for large changes, change less"
        )
        say(
            f"warning: on the calibration sentences the loss rises by {rise:.4f} bits, more than "
            f"{FAR} times the price of {price:.4f}: {reasons}"
        )
    if rise > RUIN:
        say(
            f"warning: a rise of {rise:.2f} bits spoils translations (0.1 bits were about 1 BLEU "
            "in our models): cut less, or fine-tune before you use the model"
        )
    return rise


def causes(changed: Trained, trained: Trained, batches: Sequence[Mapping[str, Any]]) -> list[str]:
    """Possible causes of a price that is too low: few words, huge activations, no heads left."""
    found = list[str]()
    decoder = trained.model.decoder
    tokens = sum(int(predicted(decoder, batch).sum()) for batch in batches)
    width = max(a.module.embed_dim for a in attentions(trained.model))
    if tokens < FEW * width:
        found.append(f"{tokens} target tokens are few for a width of {width}, read more sentences")
    for type_, counts in trained.heads.items():
        if any(counts) and not any(changed.heads[type_]):
            found.append(f"no head of {type_} attention is left")
    ratio = largest_activations(trained, batches)
    if ratio > MASSIVE:
        found.append(f"a word has {ratio:.0f} times the activations of the median word")
    return found


@torch.no_grad()
def largest_activations(trained: Trained, batches: Sequence[Mapping[str, Any]]) -> float:
    """The largest ratio, at any norm, of a word's root mean square to the median word's."""
    model, padding = trained.model, trained.task.source_dictionary.pad()
    rms: dict[Any, list[Tensor]] = {}

    def note(norm: Any, args: Any) -> None:
        rms.setdefault(norm, []).append(args[0].double().square().mean(-1).sqrt()[words[norm]])

    with in_evaluation(model), ExitStack() as hooks:
        norms = {
            side: [block.norm for layer in getattr(model, side).layers for block in blocks(layer)]
            for side in sides(model)
        }
        for norm in (norm for of_side in norms.values() for norm in of_side):
            hooks.enter_context(norm.register_forward_pre_hook(note))
        for batch in batches:
            read = {"encoder": batch["net_input"]["src_tokens"], "decoder": read_by_decoder(batch)}
            words = {norm: read[side].ne(padding).T for side in norms for norm in norms[side]}
            model(**batch["net_input"])
    every = [torch.cat(of_norm) for of_norm in rms.values()]
    return max(float(of_norm.max() / of_norm.median()) for of_norm in every)
