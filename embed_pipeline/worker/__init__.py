"""What turns leased jobs into vectors; knows the domain and nothing else."""
