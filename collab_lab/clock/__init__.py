"""Seconds: what a model, and each of its parts, takes in the engine where it will run."""
