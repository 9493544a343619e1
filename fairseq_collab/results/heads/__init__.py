"""The page, the figures and the summary of ``fairseq-collab heads``."""
