"""Calls the collector in every step."""

import gc

import tiny

tiny.train(100000, at_step=lambda step: gc.collect())
