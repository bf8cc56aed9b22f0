"""Train many runs: scenarios, jobs, engines (this machine or Slurm) and the results of runs."""
