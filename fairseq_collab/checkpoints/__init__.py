"""Checkpoint to checkpoint: open, average, prune, re-parametrise, export."""
