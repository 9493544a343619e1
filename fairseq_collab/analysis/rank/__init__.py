"""Spectra and ranks of the heads' score maps."""
