"""Train the runs of a benchmark on a Slurm cluster."""
