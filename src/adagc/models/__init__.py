"""Networks: normalisation, backbone and head, and how they are built, saved and loaded."""

from adagc.models.classifier import THRESHOLD, Classifier, Normalise, build
from adagc.models.files import ModelDescription, load_model, read_description, save_model
from adagc.models.heads import (
    HEADS,
    ClassMapHead,
    Head,
    LinearHead,
    register_head,
    unregister_head,
)
from adagc.models.label_wise import BottleneckHead, LabelWiseHead
from adagc.models.positions import AnyPositionHead, AreaHead
from adagc.models.spec import HeadSpec, ModelSpec
from adagc.models.weights import LoadReport, load_weights, pretrained_normalisation

__all__ = [
    "HEADS",
    "THRESHOLD",
    "AnyPositionHead",
    "AreaHead",
    "BottleneckHead",
    "ClassMapHead",
    "Classifier",
    "Head",
    "HeadSpec",
    "LabelWiseHead",
    "LinearHead",
    "LoadReport",
    "ModelDescription",
    "ModelSpec",
    "Normalise",
    "build",
    "load_model",
    "load_weights",
    "pretrained_normalisation",
    "read_description",
    "register_head",
    "save_model",
    "unregister_head",
]
