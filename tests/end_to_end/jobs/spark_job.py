"""Two ranks under Spark's TorchDistributor, for longer than anybody looks."""


def train() -> None:
    import torch
    from torch import distributed, nn

    distributed.init_process_group("gloo")
    model = nn.parallel.DistributedDataParallel(nn.Linear(64, 64))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while True:
        loss = model(torch.randn(32, 64)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    from pyspark.ml.torch.distributor import TorchDistributor
    from pyspark.sql import SparkSession

    SparkSession.builder.master("local[2]").getOrCreate()
    TorchDistributor(num_processes=2, local_mode=True, use_gpu=False).run(train)
    print("the driver went on")
