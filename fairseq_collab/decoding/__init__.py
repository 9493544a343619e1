"""Beam search that finds fairseq's hypotheses with less work per step."""
