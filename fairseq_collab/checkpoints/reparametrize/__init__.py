"""Trained heads become collaborative heads; ``factorise.py``, ``levenberg.py``: torch only."""
