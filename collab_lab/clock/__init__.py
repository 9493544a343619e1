"""Seconds: what a model, and each of its parts, takes in the engine where it will run.

turns    programs that take turns; how many times as fast one is
bench    speed next to stock fairseq: what the command ``bench`` measures
engines  a model in its engine
parts    what its heads, units and caches take: what ``shrink --time`` reads
"""
