"""Trained heads become heads that share: collaborative, grouped-query, latent."""

#: The size that each kind of heads has, by the values of ``--to``: importing it imports nothing.
SIZES = {
    "collab": "key_dim",
    "headsize": "key_dim",
    "grouped-query": "key_value_heads",
    "latent": "latent_dim",
}
