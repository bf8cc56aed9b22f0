"""Scenes joined from patches of real images, with the class of every pixel."""
