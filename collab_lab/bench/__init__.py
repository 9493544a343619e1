"""Training and translation of equal random models, timed in turn with stock fairseq."""
