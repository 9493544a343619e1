"""What a narrower key, a latent, a group or a missing head costs, in bits, before it is made."""
