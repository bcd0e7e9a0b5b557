import torch
import torch.nn.functional as F
import torch.optim as optim
import bluefog.torch as bf

lr = 0.01
model = torch.nn.Linear(3, 1)
bf.init()
optimizer = optim.SGD(model.parameters(), lr=lr * bf.size())
optimizer = bf.DistributedBluefogOptimizer(
   optimizer, named_parameters=model.named_parameters()
)

torch.manual_seed(bf.rank())
target = torch.Tensor([[1.0, -2.0, 3.0]])
for _ in range(300):
   data = torch.randn(16, 3)
   optimizer.zero_grad()
   loss = F.mse_loss(model(data), data @ target.T)
   loss.backward()
   optimizer.step()
print(f"{bf.rank()}: The weight is {model.weight.data}")
