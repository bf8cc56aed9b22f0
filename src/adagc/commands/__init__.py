"""The commands, by family. Heavy imports stay inside the functions."""
