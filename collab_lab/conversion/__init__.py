"""Trained heads become heads that share: collaborative, grouped-query, latent."""
