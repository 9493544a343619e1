"""Statistics of a model from one pass over sentences, from which every price is computed.

attentions  makes the pass and collects the statistics of every attention
units       collects the statistics of feed-forward blocks
metric      adds a ridge to metrics; computes second moments
stored      writes and reads statistics
"""

#: The file of statistics in a folder of prices: importing its name imports nothing.
STATISTICS = "statistics.pt"
