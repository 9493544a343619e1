"""Mathematics of cuts: the price of a change, the best weights of new heads, the refit.

removal, head_prices   prices of removed heads and units
attention_price        prices of a changed attention
low_rank, shared_projection, new_heads   the best weights of heads that share, and their price
refit, rise            output maps that compensate for a change; the measured rise of the loss
"""
