"""The laboratory around the plug-in: trained models, prices, conversion, pruning, runs, results.

Importing it imports neither torch nor fairseq: its modules import what they need.
"""
