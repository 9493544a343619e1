"""A trained model becomes a smaller one: one pass, prices, a plan, a model that is refitted.

statistics, unit_statistics, stored   one pass over sentences; its results in a file
removal, head_prices, head_choices    prices of removed heads and units; which heads go
attention_price                       price of a changed attention; the cheapest within budgets
kinds, low_rank, shared_projection    kinds of heads that share, and their best weights
prices                                what each part of a model is worth
surgery, converter                    a model without some heads; a model with other heads
refit, rise                           output maps that make up for it; the measured loss
choices, plan, shrunk                 what may stay, the cheapest of it, the smaller model
changes                               models with the heads that are stated, as papers make them
hugging_face                          shared keys in models of Hugging Face
"""

#: The size that each kind of heads has, by the values of ``--to``: importing it imports nothing.
SIZES = {
    "collab": "key_dim",
    "headsize": "key_dim",
    "grouped-query": "key_value_heads",
    "latent": "latent_dim",
}
