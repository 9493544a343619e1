"""What every package here stands on: errors, files, folders, locks, provenance, progress.

It stands outside ``fairseq_collab`` because importing that imports fairseq and torch, which
``data_prep`` and ``fairseq-collab doctor`` do without.  It imports nothing of the project.
"""
