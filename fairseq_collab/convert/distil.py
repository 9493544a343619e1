"""A short distillation: the result learns to predict what the trained model predicts.

    L = mean over tokens of KL(p(. | trained) || p(. | result))

Only what was converted is trained unless more is asked for, of collaborative heads what scores
(shared projections, mixing, content biases), on inputs alone: no reference is needed.  Of the whole
model, not layer by layer: errors of early layers are then made up for by later ones.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from collab_common.progress import bar
from fairseq_collab.attention import CollaborativeAttention
from fairseq_collab.attention.grouped_query import GroupedQueryAttention
from fairseq_collab.attention.latent import LatentAttention
from fairseq_collab.trained.opener import to_device

#: Parts of a collaborative attention that score.
_SCORING = ("q_proj.weight", "k_proj.weight", "mixing", "content_bias")
#: Peak learning rate of Adam; it falls to zero linearly.
LEARNING_RATE = 3e-4
#: Gradients are cut to this norm.
CLIP = 1.0


def distil(
    trained: Any,
    result: Any,
    inputs: Sequence[dict[str, Any]],
    pad: int,
    updates: int,
    *,
    learning_rate: float = LEARNING_RATE,
    seed: int = 1,
    parameters: Sequence[nn.Parameter] = (),
) -> list[float]:
    """Train ``result`` in place for ``updates`` batches of ``inputs``; the loss of each.

    Both models are in eval mode: no dropout.

    Args:
        inputs: batches, as :func:`.calibrate.sentences` makes them; they are shuffled, and go
            round.
        pad: the padding symbol; nothing is learnt where the model reads padding.
        parameters: of ``result``, what is trained; what was converted unless given.
    """
    trained.eval(), result.eval()
    parameters = list(parameters) or changed_parameters(result)
    optimiser = torch.optim.Adam(parameters, lr=learning_rate)
    schedule = torch.optim.lr_scheduler.LinearLR(optimiser, 1.0, 0.0, total_iters=updates)
    order = list(inputs)
    random.Random(seed).shuffle(order)
    losses = []
    for batch in bar("distillation", [*itertools.islice(itertools.cycle(order), updates)]):
        net_input = to_device(batch, parameters[0].device)
        read = net_input.get("prev_output_tokens", net_input["src_tokens"])
        loss = divergence(trained, result, net_input, read.ne(pad))
        result.zero_grad()
        # Of all: named inputs would not reach what fairseq computes again (checkpoint_activations).
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, CLIP)
        optimiser.step()
        schedule.step()
        losses.append(loss.item())
    result.zero_grad()
    return losses


def divergence(trained: Any, result: Any, net_input: dict[str, Any], real: Tensor) -> Tensor:
    """Mean KL divergence (nats a token) where ``real (B, T)`` is true."""
    with torch.no_grad():
        wanted = _log_probabilities(trained, trained(**net_input)[0][real])
    found = _log_probabilities(result, result(**net_input)[0][real])
    return nn.functional.kl_div(found, wanted, reduction="batchmean", log_target=True)


def _log_probabilities(model: Any, output: Tensor) -> Tensor:
    """``(N, vocabulary)`` of logits, or of the ``(N, d)`` that an adaptive softmax reads.

    fairseq's own ones of an adaptive softmax have no gradients.
    """
    softmax = getattr(getattr(model, "decoder", None), "adaptive_softmax", None)
    if softmax is None:
        return output.float().log_softmax(-1)
    common, first = softmax.head(output).float().log_softmax(-1), softmax.cutoff[0]
    rare = [
        tail(output).float().log_softmax(-1) + common[:, first + i, None]
        for i, tail in enumerate(softmax.tail)
    ]
    return torch.cat([common[:, :first], *rare], -1)


def changed_parameters(model: nn.Module) -> list[nn.Parameter]:
    """What heads share, and what reads it, in all attentions of ``model`` that were converted."""
    found: list[nn.Parameter] = []
    for module in model.modules():
        if isinstance(module, CollaborativeAttention) and module.value_heads == module.num_heads:
            found += (one for name, one in module.named_parameters() if name in _SCORING)
        elif _shares(module):
            found += module.parameters()
    return found


def _shares(module: nn.Module) -> bool:
    """Whether keys or values are shared: an attention that was left alone shares none."""
    if isinstance(module, GroupedQueryAttention):
        return module.key_value_heads < module.num_heads
    if isinstance(module, LatentAttention):
        return module.latent_dim < module.kdim
    return isinstance(module, CollaborativeAttention)
