"""Predictions of a trained model for files, folders, arrays and scenes of any size.

Nothing here imports torch, unless the model is the network of a run.
"""

from __future__ import annotations

from adagc.prediction.maps import Mapped
from adagc.prediction.predicting import predict
from adagc.prediction.results import Predicted

__all__ = ["Mapped", "Predicted", "predict"]
