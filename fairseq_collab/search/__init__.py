"""Beam search: what fairseq's finds, with less work a step.

:mod:`fairseq_collab.search.candidates` and :mod:`fairseq_collab.search.beam` are torch only;
:mod:`fairseq_collab.search.seam` says which of fairseq's searches they stand in for.
"""
