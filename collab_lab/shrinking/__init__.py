"""Shrink a trained model: heads, feed-forward units and the KV cache, in one plan."""
