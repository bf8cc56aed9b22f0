"""What reproduces the paper: its ablations, propositions, figures and printed values."""
