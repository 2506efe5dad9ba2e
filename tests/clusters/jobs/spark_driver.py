"""Two ranks under TorchDistributor: `spark_driver.py MASTER STEPS well|ill`, "" for the master of spark-submit.

In local mode they run this file, `spark_driver.py STEPS`; otherwise a function.
"""

import sys


def train(steps: int, ill: bool) -> float:
    import time

    import torch
    from of_the_users import scale
    from torch import distributed, nn
    from torch.utils.data import DataLoader, Dataset

    class Samples(Dataset):
        def __len__(self) -> int:
            return 32 * steps

        def __getitem__(self, index: int) -> torch.Tensor:
            if ill and distributed.get_rank() == 1:
                time.sleep(0.002)
            return torch.full((256,), scale(index % 7))

    distributed.init_process_group("gloo")
    torch.manual_seed(0)
    model = nn.Sequential(*[layer for _ in range(12) for layer in (nn.Linear(256, 256), nn.ReLU())])
    model = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    last = 0.0
    for batch in DataLoader(Samples(), batch_size=32):
        loss = model(batch).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        last = loss.item()
    distributed.destroy_process_group()
    return last


if __name__ == "__main__" and len(sys.argv) == 2:
    train(int(sys.argv[1]), False)
elif __name__ == "__main__":
    from pyspark.ml.torch.distributor import TorchDistributor
    from pyspark.sql import SparkSession

    master, steps, kind = sys.argv[1:]
    builder = SparkSession.builder.config("spark.ui.enabled", "false")
    session = (builder.master(master) if master else builder).getOrCreate()
    inside = master.startswith("local[")
    distributor = TorchDistributor(num_processes=2, local_mode=inside, use_gpu=False)
    if inside:
        distributor.run(__file__, steps)
    else:
        print("result", distributor.run(train, int(steps), kind == "ill"))
    print("path", session.sparkContext.getConf().get("spark.executorEnv.PYTHONPATH"))
    session.stop()
