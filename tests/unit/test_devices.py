"""Attention makes its tensors on the device of its inputs.

A ``meta`` tensor has a device and a shape but no numbers: it notices, without a GPU, a tensor made
on the CPU, and numbers read by the host.  ``pytest -m gpu`` tests whole models on a GPU.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toy

from collab_lab.trained.attentions import attentions
from fairseq_collab.attention.cache import start_beam_history
from fairseq_collab.models.variants import VARIANTS


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda one: one.name)
@pytest.mark.parametrize("training", [True, False])
def test_on_one_device(variant: Any, training: bool) -> None:
    model = toy.model(f"transformer_{variant.name}", attention_dropout=0.1).to("meta")
    x, context = torch.ones(3, 2, 16, device="meta"), torch.ones(5, 2, 16, device="meta")
    causal = torch.zeros(3, 3, device="meta")
    for one in attentions(model.train(training)):
        keys = context if one.type == "cross" else x
        padding = torch.zeros(2, len(keys), dtype=torch.bool, device="meta")
        mask = causal if one.type == "decoder" else None
        for wanted in (True, False):
            output, _ = one.module(
                x, keys, keys, key_padding_mask=padding, attn_mask=mask, need_head_weights=wanted
            )
            assert output.is_meta
        output.sum().backward()
        if one.type != "encoder" and not training:
            state: dict[str, Any] = {}
            start_beam_history(state, 2, 2, x).extend(torch.zeros(2, 1, device="meta"))
            step = {"incremental_state": state, "static_kv": one.type == "cross"}
            assert one.module(x[:1], keys, keys, **step)[0].is_meta
