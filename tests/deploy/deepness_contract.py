"""What the plug-in Deepness does with a model of the type Regressor, without QGIS.

    python deepness_contract.py MODEL.onnx CASES.npz

It needs onnxruntime and numpy alone, so that it runs with the versions that QGIS users have. Cases
are tiles (N, S, S, bands) of any type; what the model says of each is printed as JSON.
"""

import json
import sys

import numpy as np
import onnxruntime


class Regressor:
    """A model as the plug-in opens it; ValueError for what it would not take."""

    def __init__(self, path):
        self.session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        (self.input,) = self.session.get_inputs()
        about = self.session.get_modelmeta().custom_metadata_map
        values = {key: json.loads(text) for key, text in about.items()}
        self.kind = str(values["model_type"]).capitalize()
        self.tile_size = int(values["tile_size"])
        self.tiles_size = int(values["tiles_size"])
        self.scaling = float(values["reg_output_scaling"])
        self.names = [self._names(one) for one in values["class_names"]]
        if self.input.shape[-2:] != [self.tile_size, self.tile_size]:
            raise ValueError(f"tiles of {self.tile_size} for an input of {self.input.shape}")
        for output in self.session.get_outputs():
            if len(output.shape) != 4 or output.shape[2] != output.shape[3]:
                raise ValueError(f"no square map: {output.shape}")

    @staticmethod
    def _names(numbered):
        ordered = sorted(numbered.items(), key=lambda pair: int(pair[0]))
        if [int(key) for key, _ in ordered] != list(range(len(ordered))):
            raise ValueError(f"numbers are missing: {numbered}")
        return [name for _, name in ordered]

    def maps(self, tiles):
        """(outputs, N, S, S) what is drawn, of tiles (N, S, S, bands) as they are in a layer."""
        tiles = tiles[:, :, :, : self.input.shape[-3]]
        batch = np.float32(tiles * 1.0 / 255.0).transpose(0, 3, 1, 2)
        found = self.session.run(None, {self.input.name: batch})
        return np.array([one[:, 0] * self.scaling for one in found])


if __name__ == "__main__":
    model, cases = Regressor(sys.argv[1]), np.load(sys.argv[2])
    said = {name: model.maps(cases[name])[:, :, 0, 0].T.tolist() for name in cases.files}
    print(json.dumps({"version": onnxruntime.__version__, "kind": model.kind, "said": said}))
