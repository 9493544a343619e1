"""Runs: a folder for each training of a sweep, with its configuration, log and scores."""
