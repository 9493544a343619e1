"""Errors, the table of commands, files, provenance: the base of every package here.

It lies outside ``fairseq_collab`` because importing that imports fairseq and torch, which
``data_prep`` and ``fairseq-collab doctor`` do without.  It imports nothing of the project.
"""

#: Whether importing ``fairseq_collab`` registers its models with fairseq, which takes seconds: a
#: command that has no use for models says no, before that import.
MODELS = True
