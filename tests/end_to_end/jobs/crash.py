"""Trains for a while, then divides by zero."""

import tiny


def fail(step):
    if step == 60:
        print(1 / 0)


tiny.train(100, at_step=fail, sleep_s=0.005)
