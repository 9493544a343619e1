"""Trained heads become collaborative heads: ``fairseq-collab reparametrize``.

``factorise.py`` and ``levenberg.py`` are torch only; ``command.py`` is the command.
"""
