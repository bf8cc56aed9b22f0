"""Reproduction of the AdaGC paper: its ablations, propositions, figures and printed values."""
