"""Multiply-adds of one sentence pair, counted while the model runs it.

torch's own counter looks at every matrix product that is executed and knows nothing of formulas.
What is counted is the full forward pass of a training step or of scoring a translation: each
source and target token once, output projection included; embeddings, softmax, normalisation and
products by element (the mixing of collaborative heads, dropout) have no matrix product and count
for nothing.  That is the convention of Ni et al. 2023 (arXiv 2305.14380), table 1, where such
counts at 30 source and 30 target tokens are called FLOPs.
"""

from __future__ import annotations

import copy
from typing import Any

import torch
from fairseq.modules.transformer_layer import TransformerEncoderLayerBase
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from fairseq_collab.kernels.onednn import restore_linear

#: Source and target length that costs are stated at, as in the paper above.
LENGTH = 30
_SOME_WORD = 4  # the first symbol after fairseq's four special ones


def multiply_adds(model: Any, source_length: int = LENGTH, target_length: int = LENGTH) -> int:
    """Multiply-adds of an encoder-decoder transformer, stock or ours, on one sentence pair."""
    model = copy.deepcopy(model).eval()
    restore_linear(model)  # torch has no count of oneDNN's products
    for module in model.modules():
        if isinstance(module, TransformerEncoderLayerBase):
            module.can_use_fastpath = False  # a fused kernel, which the counter cannot see into
    source = torch.full((1, source_length), _SOME_WORD)
    target = torch.full((1, target_length), _SOME_WORD)
    # Plain products in place of fused kernels, which the counter cannot see into either.
    plain = sdpa_kernel(SDPBackend.MATH)
    counter = FlopCounterMode(display=False)
    with torch.no_grad(), plain, counter:
        model(source, torch.tensor([source_length]), target)
    return counter.get_total_flops() // 2  # a multiply-add is two operations
