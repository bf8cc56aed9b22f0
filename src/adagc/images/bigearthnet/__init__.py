"""Patches of BigEarthNet: pixels of two radar and twelve optical bands, in every published form."""
