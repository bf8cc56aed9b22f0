"""Images decoded once, in one memory-mapped array per folder and size."""
