"""This module draws batches for training without a common epoch."""

from __future__ import annotations

from collections.abc import Iterator, Sized

import torch
from torch.utils.data import Sampler


class LocalStepRandomBatchSampler(Sampler[list[int]]):
    """Draw a rank's random batches: each epoch begins where the last one ended.

    Asyncddp has this class, with another order.

    Thread safety: one thread at a time may iterate. It owns its random generator and the samples
    that are left of an epoch.

    Args:
        dataset: anything with a length; each rank draws from all of it.
        batch_size: samples of a batch.
        base_seed: seeds the order, with the rank.
        rank: this rank.
        drop_last: leave out the samples that no whole batch is left for; otherwise such a batch
            goes on with the next epoch's samples.

    Raises:
        ValueError: `batch_size` is not from 1 to the length of the dataset.

    Example:
        >>> sampler = bf.optim.LocalStepRandomBatchSampler(range(6), batch_size=2, base_seed=1)
        >>> batches = list(sampler)
        >>> len(batches), sorted(sample for batch in batches for sample in batch)
        (3, [0, 1, 2, 3, 4, 5])
    """

    def __init__(
        self,
        dataset: Sized,
        batch_size: int,
        base_seed: int,
        rank: int = 0,
        drop_last: bool = False,
    ) -> None:
        if not 1 <= batch_size <= len(dataset):
            raise ValueError(
                f"LocalStepRandomBatchSampler: batch_size must be 1 to {len(dataset)}, the length "
                f"of the dataset, not {batch_size}"
            )
        self._size = len(dataset)
        self.batch_size, self.drop_last = batch_size, drop_last
        self._random = torch.Generator().manual_seed(base_seed * 1_000_003 + rank)
        self._left: list[int] = []

    def __len__(self) -> int:
        more = 0 if self.drop_last else self.batch_size - 1
        return (self._size + more) // self.batch_size

    def __iter__(self) -> Iterator[list[int]]:
        for _ in range(len(self)):
            if len(self._left) < self.batch_size:
                kept = [] if self.drop_last else self._left
                order = torch.randperm(self._size, generator=self._random, device="cpu")
                self._left = kept + order.tolist()
            batch = self._left[: self.batch_size]
            self._left = self._left[self.batch_size :]
            yield batch
