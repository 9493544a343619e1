"""Corpora: fetch, check, segment into subwords, binarise for fairseq."""
