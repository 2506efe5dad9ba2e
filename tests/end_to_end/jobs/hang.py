"""Imports torch and then waits for something that never comes, with a child that waits too."""

import subprocess
import sys
import time

import torch  # noqa: F401

subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("hanging", flush=True)
time.sleep(600)
