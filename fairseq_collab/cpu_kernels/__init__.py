"""Faster arithmetic on a CPU: linear maps with oneDNN, dropout, attention to rounded caches."""
