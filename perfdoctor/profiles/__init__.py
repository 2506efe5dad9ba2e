"""What `perfdoctor profile` makes of sampled stacks: hot lines, flame graphs, and files for other tools to open."""
