"""Time in seconds of a model and of each of its parts, in the engine that will run it.

turns    times programs that take turns; computes how many times as fast one is
bench    compares speed with stock fairseq, for the command ``bench``
lengths  times decoding by length, for the same command
engines  runs a model in its engine
parts    times a model's heads, units and caches, for ``shrink --time``
"""
