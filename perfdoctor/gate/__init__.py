"""The CI gate: compares a job with what it was before, and says when it cannot tell."""
