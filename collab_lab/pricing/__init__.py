"""Predicted loss increase, in bits, of a narrower key, a latent, a group or a missing head."""
