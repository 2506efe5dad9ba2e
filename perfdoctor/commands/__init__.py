"""What the commands of the CLI do, one file each."""
