"""From traces to evidence: the same objects as a run of one's own gives, as far as a trace holds them."""
