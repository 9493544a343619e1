"""Translations and models to numbers: BLEU, chrF, significance, cost."""
