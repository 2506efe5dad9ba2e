"""What a profiler recorded elsewhere, in typed columns: torch.profiler's traces and Nsight Systems' exports."""
