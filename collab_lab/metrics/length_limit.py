"""How long the translation of a source may be: one rule for runs, Python and exports.

fairseq's own limit is 200 tokens for every source.  That cuts documents off, and lets a hardly
trained model, which does not end its sentences, run for minutes.
"""

#: fairseq's options for at most ``a x + b`` tokens of a source of x, within the model's positions.
LENGTH_LIMIT = {"max_len_a": 2, "max_len_b": 20}
