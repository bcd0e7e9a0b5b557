"""This program trains by Lightning, where only DDPStrategy's process_group_backend is chosen.

Lightning starts the second rank itself: python train_lightning.py BACKEND FOLDER
"""

import sys

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.plugins.environments import LightningEnvironment
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset
from torchmetrics import MeanMetric

from tests.support import stack


class Learner(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net, self.metric = stack.mlp(), MeanMetric()
        self.losses: list[float] = []
        self.answer = ""

    def training_step(self, rows: list[Tensor], _index: int) -> Tensor:
        return nn.functional.mse_loss(self.net(rows[0]), rows[1])

    def validation_step(self, rows: list[Tensor], _index: int) -> None:
        loss = nn.functional.mse_loss(self.net(rows[0]), rows[1])
        self.metric.update(loss)
        self.log("loss", loss, sync_dist=True)

    def on_validation_epoch_end(self) -> None:
        self.losses.append(self.metric.compute().item())  # the mean over both ranks
        self.metric.reset()

    def on_train_end(self) -> None:
        self.answer = (
            f"rank {self.global_rank} of {self.trainer.world_size} backend {dist.get_backend()} "
            f"ddp {isinstance(self.trainer.model, nn.parallel.DistributedDataParallel)} "
            f"losses {self.losses} "
            f"operations {stack.operations() if dist.get_backend() == 'bluefog' else 0}"
        )

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def main(backend: str, folder: str) -> None:
    torch.set_num_threads(1)
    lightning.seed_everything(1)
    best = ModelCheckpoint(folder, monitor="loss", save_last=True)
    trainer = lightning.Trainer(
        strategy=DDPStrategy(process_group_backend=backend),
        accelerator="cpu",
        devices=2,
        max_epochs=4,
        callbacks=[best],
        # Lightning would choose this by itself, but looking for MPI, it would start MPI where
        # mpi4py is.
        plugins=[LightningEnvironment()],
        logger=False,
        default_root_dir=folder,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    rows = TensorDataset(*stack.batch(0, 256))
    learner = Learner()
    trainer.fit(learner, DataLoader(rows, 16, shuffle=True), DataLoader(rows, 16))
    assert best.best_model_path
    sys.stdout.write(learner.answer + "\n")


main(*sys.argv[1:])
