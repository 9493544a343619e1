"""Faster arithmetic on a CPU: linear maps by oneDNN, dropout from fewer random bits."""
