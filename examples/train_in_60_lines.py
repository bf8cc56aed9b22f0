"""From one label per image to a multi-label classifier, without anything hidden.

What `adagc train` does in essence, as plain PyTorch: made-up scenes, one label of each, a network,
and a loss that asks how probable that label is if somebody named one of the classes at random.

    python examples/train_in_60_lines.py
"""

import torch

from adagc import open_collection, score
from adagc.labels import simulate_random
from adagc.losses import random_annotator
from adagc.models import ModelSpec, build

EPOCHS, BATCH = 15, 32
torch.manual_seed(0)

# Scenes of 12 bands with clean labels. Training sees one label of each and never the others.
data = open_collection("synthetic", scenes=600, size=32)
train, test = data.splits["train"], data.splits["test"]
observed = torch.from_numpy(simulate_random(data.truth[train], seed=0))
images = torch.from_numpy(data.images.gather(train)).float()
print(f"{len(train)} scenes, {data.truth[train].sum(axis=1).mean():.1f} classes each, one is known")

# A small network. Raw values go in: it normalises them itself.
spec = ModelSpec("test_resnet", data.images.shape, data.classes, data.images.bands)
network = build(spec, seed=0, mean=images.mean((0, 2, 3)), std=images.std((0, 2, 3)))

# Averaged weights are better than the last ones, with any loss.
average = torch.optim.swa_utils.AveragedModel(
    network, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.98), use_buffers=True
)
optimiser = torch.optim.Adam(network.parameters(), lr=2e-3)
for epoch in range(EPOCHS):
    network.train()
    for rows in torch.randperm(len(train)).split(BATCH):
        logits = network(images[rows])
        # log P(s = c): the annotator names class c. No class is taken for absent.
        named = random_annotator(logits)
        loss = -named[observed[rows] > 0].mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        average.update_parameters(network)
    print(f"epoch {epoch + 1:2d}  loss {loss.item():.2f}")

# Clean labels are used here for the first time, to see how good the network is.
network.load_state_dict(average.module.state_dict())
network.eval()
with torch.no_grad():
    found = network.probabilities(torch.from_numpy(data.images.gather(test)).float()).numpy()
scores = score(data.truth[test], found, absent="skip")
print(f"mAP {100 * scores.mean_average_precision:.1f}")
