"""What several checks use alike; no check is found here."""
