"""Corpora: download and check text, segment it into subwords, and binarise it for fairseq."""
