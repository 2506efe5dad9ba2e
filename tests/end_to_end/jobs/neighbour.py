"""Keeps one CPU busy until it is ended."""

while True:
    sum(range(100_000))
