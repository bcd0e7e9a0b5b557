import torch
import torch.nn.functional as F
import torch.optim as optim
import bluefog.torch as bf
from bluefog.common import topology_util

lr = 0.01
model = torch.nn.Linear(3, 1)
bf.init()
optimizer = optim.SGD(model.parameters(), lr=lr * bf.size())
optimizer = bf.DistributedNeighborAllreduceOptimizer(
   optimizer, model=model
)

dynamic_neighbors_gen = topology_util.GetInnerOuterExpo2DynamicSendRecvRanks(
          bf.size(), local_size=bf.local_size(), self_rank=bf.rank())
def dynamic_topology_update(epoch, batch_idx):
  send_neighbors, recv_neighbors = next(dynamic_neighbors_gen)
  avg_weight = 1/(len(recv_neighbors) + 1)
  optimizer.send_neighbors = send_neighbors
  optimizer.neighbor_weights = {r: avg_weight for r in recv_neighbors}
  optimizer.self_weight = avg_weight

# Torch training code
torch.manual_seed(bf.rank())
true = torch.Tensor([[1.0, -2.0, 3.0]])
epochs, train_loader = 3, [torch.randn(16, 3) for _ in range(100)]
for epoch in range(epochs):
  for batch_idx, data in enumerate(train_loader):
      dynamic_topology_update(epoch, batch_idx)
      optimizer.zero_grad()
      loss = F.mse_loss(model(data), data @ true.T)
      loss.backward()
      optimizer.step()
print(f"{bf.rank()}: The weight is {model.weight.data}")
