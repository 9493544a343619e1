"""How much faster than stock fairseq: train and translate the same random models in turn."""
