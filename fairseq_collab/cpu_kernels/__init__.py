"""Faster arithmetic on a CPU: linear maps by oneDNN, dropout, attention to rounded caches."""
