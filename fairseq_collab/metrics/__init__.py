"""Translations and models to numbers: BLEU, ROUGE, perplexity, cost."""
