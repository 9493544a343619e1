"""Votes and choices become a smaller checkpoint."""
