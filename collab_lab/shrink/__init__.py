"""Shrink a trained model: heads, feed-forward units, widths and bits of the KV cache, in one plan."""
