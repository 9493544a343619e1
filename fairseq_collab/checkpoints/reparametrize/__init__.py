"""Trained heads become heads that share; ``factorise.py``, ``levenberg.py``, ``low_rank.py``: torch only."""
