"""One observed run: from a command to a complete recording."""
