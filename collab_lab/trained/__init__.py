"""Trained checkpoints: open them, save them, average them, and read their attentions.

checkpoint     open and save a model; ``identity``: a hash of it
sentences      those of its data folder, in batches
attentions     where they are and what they compute; ``feed_forward``: the blocks
rebuilt        a new model of given options and weights; ``fine_tuning``: options to train it on
average        the mean of several checkpoints
from_options   a model built from its options only, without a data folder
"""
