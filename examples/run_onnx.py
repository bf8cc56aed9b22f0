"""Run an exported model with onnxruntime and numpy alone.

python run_onnx.py models/first/model.onnx images.npy      raw values (N, bands, height, width)
"""

import json
import sys

import numpy as np
import onnxruntime

model, images = sys.argv[1:]
session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
about = {key: json.loads(v) for key, v in session.get_modelmeta().custom_metadata_map.items()}
values = np.load(images).astype(np.float32)
assert values.shape[1:] == tuple(about["input_shape"]), f"give the bands {about['bands']}"
(probabilities,) = session.run(["probabilities"], {"images": values})
present = probabilities >= np.array(about["thresholds"], dtype=np.float32)
for row, (found, numbers) in enumerate(zip(present, probabilities, strict=True)):
    names = [f"{about['classes'][c]} {numbers[c]:.2f}" for c in np.flatnonzero(found)]
    print(row, "; ".join(names) or "nothing", sep="\t")
