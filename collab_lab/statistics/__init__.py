"""What one pass over sentences shows of a model: the evidence for every price.

attentions  statistics of every attention, and the pass
units       those of feed-forward blocks
metric      metrics with a ridge; second moments
stored      statistics in a file
"""

#: The file of statistics in a folder of prices: importing its name imports nothing.
STATISTICS = "statistics.pt"
