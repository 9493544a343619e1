"""Beam search: what fairseq's finds, with less work a step.

:mod:`fairseq_collab.search.seam` says which of fairseq's searches it stands in for.
"""
