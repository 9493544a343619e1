"""Predicted loss increase, in bits, of a narrower key, a latent, a group or a missing head."""

#: The file of statistics in a folder of prices: importing its name imports nothing.
STATISTICS = "statistics.pt"
