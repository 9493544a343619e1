"""Closed forms: what a change costs, and the best weights of new heads.

removal, head_prices   prices of removed heads and units
priced_attention       a trained attention, and prices of its changes
low_rank, shared_projection, new_heads   the best weights of heads that share, and their price
"""
