"""Checks of images and labels before training: the command `adagc inspect`."""
