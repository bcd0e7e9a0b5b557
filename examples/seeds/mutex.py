import torch
import bluefog.torch as bf

bf.init()
tensor, name = torch.Tensor([bf.rank()]), "mutex"
bf.win_create(tensor, name)
with bf.win_mutex():
   tensor = bf.win_sync_then_collect(name)
bf.win_put(tensor, name)
bf.barrier()
print(f"{bf.rank()}: The tensor is {tensor}")
