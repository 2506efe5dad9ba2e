"""The job's own operators called again on tensors of ours: what they would take with other settings."""
