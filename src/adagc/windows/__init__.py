"""Scenes of any size by windows: where windows lie, reading them, blending, maps as rasters.

Nothing here knows a model: windows go in, one vector of numbers per window comes back.
"""
