"""Stands for the engine: a worker of it has imported a module of this name."""
