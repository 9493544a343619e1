"""The longest translation, by the length of its source: one rule for runs, Python and exports.

fairseq's own limit is 200 tokens, whatever the source: it cuts documents, and lets a model that is
hardly trained, and does not end its sentences, run on for minutes.
"""

#: fairseq's options for at most ``a x + b`` tokens of a source of x, within the model's positions.
LIMIT = {"max_len_a": 2, "max_len_b": 20}
