"""Closer looks of a step or two: when they open, and what each of them sees."""
