"""A hash that identifies a model, so that a file can say which model it belongs to."""

from __future__ import annotations

import hashlib

import torch
from torch import nn

from collab_lab.trained.attentions import attentions, own_bits


def hash_of(model: nn.Module) -> str:
    """A hash of all weights, the numbers of heads, and the bits of the KV caches."""
    of_model = hashlib.sha256()
    for name, weight in sorted(model.state_dict().items()):
        of_model.update(f"{name} {tuple(weight.shape)} {weight.dtype}".encode())
        of_model.update(weight.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    for attention in attentions(model):
        module = attention.module
        of_model.update(f"{attention} {module.num_heads} {own_bits(module)}".encode())
    return of_model.hexdigest()
