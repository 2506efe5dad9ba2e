"""What engines that place processes on other machines need: the way in there, and the way home for what is recorded."""
