"""Answers SIGTERM with minutes of cleaning up, and swallows whatever is raised inside its loop."""

import signal
import time

import tiny


def clean_up(number, frame):
    print("cleaning up", flush=True)
    time.sleep(600)


signal.signal(signal.SIGTERM, clean_up)
while True:
    try:
        tiny.train(1000, sleep_s=0.005)
    except BaseException as error:
        print("caught", type(error).__name__, flush=True)
        time.sleep(600)
