"""From findings to trials of their remedies, and from blocks of steps to gains. Runs nothing itself."""
