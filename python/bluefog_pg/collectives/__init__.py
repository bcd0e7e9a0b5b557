"""Run operations of all ranks of a group as functions of tensors, with new results and gradients.

torch.distributed has these operations in place. Here a result may also have another size than the
input, and autograd goes through. The blocking forms are differentiable. Those with `async_op` are
not, nor are `allreduce_` and `broadcast_`.

Any thread may call them, in one order on all ranks.

Example:
    >>> x = torch.full((2,), float(bf.rank()), requires_grad=True)
    >>> bf.collectives.allreduce(x, average=False).sum().backward()
    >>> x.grad.tolist()
    [4.0, 4.0]
"""

from bluefog_pg.collectives.functions import allgather, allreduce, allreduce_, broadcast, broadcast_

__all__ = ["allgather", "allreduce", "allreduce_", "broadcast", "broadcast_"]
