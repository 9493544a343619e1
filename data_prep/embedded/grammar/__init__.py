"""Sampling: random abstract trees that make sense, balanced over constructions."""
