"""Trained checkpoints: open them, save them, average them, and read their attentions.

checkpoint     opens and saves a model; ``identity`` hashes it; ``arguments`` checks arguments
sentences      reads the sentences of the data folder, in batches
attentions     lists all attentions and their weights; ``feed_forward`` lists the blocks
rebuilt        builds a changed model; ``configuration`` writes the options to fine-tune it
average        averages the weights of several checkpoints
untrained      builds a model from its options, without a task or data
"""
