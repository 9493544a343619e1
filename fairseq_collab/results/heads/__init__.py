"""The page and the figures of ``fairseq-collab heads``."""
