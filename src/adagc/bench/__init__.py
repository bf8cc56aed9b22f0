"""Many runs as one experiment: scenarios, tables, tuning, ablations, figures, theory."""
