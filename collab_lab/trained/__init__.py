"""Trained checkpoints: open, average, list their attentions."""
