"""Children that do not train, by every way to start one, and a program that replaces itself."""

import multiprocessing
import os
import subprocess
import sys

import facts
import loops


def square(x):
    import torch

    return int(torch.tensor(x) ** 2)


def main():
    if sys.argv[1:] == ["again"]:
        print("replaced", os.getpid() == int(os.environ["JOB_WAS"]))
    facts.seed()
    model, optimizer, criterion = loops.setup()
    loops.train(model, optimizer, criterion, loops.data(), 12)
    print(facts.digest(model.parameters()), flush=True)
    if sys.argv[1:] == ["again"]:
        return
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(method, pool.map(square, range(4)), flush=True)
    print(subprocess.run([sys.executable, "-c", "print(6 * 7)"], capture_output=True, text=True).stdout, flush=True)
    child = os.fork()
    if child == 0:
        os._exit(7)
    print("status", os.waitpid(child, 0)[1], flush=True)
    os.environ["JOB_WAS"] = str(os.getpid())
    os.execv(sys.executable, [sys.executable, __file__, "again"])


if __name__ == "__main__":
    main()
