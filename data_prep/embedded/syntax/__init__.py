"""Syntax: one abstract tree for a sentence, and its linearisation in each language."""
