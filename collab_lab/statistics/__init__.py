"""Statistics of a model from one pass over sentences, from which every price is computed.

moments  second moments at every attention, and the pass
units    those of feed-forward blocks
gram     Gram matrices; a ridge on a metric
stored   statistics in a file
"""

#: The file of statistics in a folder of prices: importing its name imports nothing.
STATISTICS = "statistics.pt"
