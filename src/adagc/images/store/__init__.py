"""The cache of decoded images: one memory-mapped array per folder and image size."""
