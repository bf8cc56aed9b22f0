"""The estimator: one label per row of an array in, all labels out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from adagc.errors import AdagcError
from adagc.estimator.targets import InputError, Targets, targets
from adagc.methods import DEFAULT, find
from adagc.metrics import average_precision
from adagc.metrics.noisy import auc
from adagc.options import read, typed
from adagc.progress import sent_to

if TYPE_CHECKING:
    from adagc.images.array import ArrayScenes
    from adagc.methods import Method
    from adagc.training.records import EpochRecord
    from adagc.training.runs import Run

# Kept as they are; anything else becomes the first one, in which networks compute.
_KINDS = [np.float32, np.float16, np.uint8, np.int16, np.uint16]
_SEEDS = 2**31 - 1


class SinglePositiveClassifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A multi-label classifier learnt from one label per row, as a scikit-learn estimator.

    Nothing is written to disk. A part of the rows (`validation_share`) is not trained on: its
    observed labels choose the epoch, the thresholds and the class frequencies. NaN in X means that
    a value is missing.

    Example:
        >>> import numpy as np
        >>> from adagc import SinglePositiveClassifier
        >>> rng = np.random.default_rng(0)
        >>> present = rng.random((200, 3)) < 0.5
        >>> present[np.arange(200), rng.integers(0, 3, 200)] = True
        >>> X = present + rng.normal(scale=0.1, size=(200, 3))
        >>> y = [rng.choice(np.flatnonzero(row)) for row in present]  # one label of each row
        >>> found = SinglePositiveClassifier(epochs=5, learning_rate=0.01).fit(X, y).predict(X)
        >>> found.shape
        (200, 3)

    Args:
        method: Name of the method, as `adagc methods` lists them.
        options: Options of the method by name, as `adagc methods NAME` explains them.
        backbone: Network: mlp or linear for embeddings, a timm model for images; auto chooses.
        hidden: Width of the hidden layer of mlp.
        dropout: Share of the values that are set to zero in training.
        learning_rate: Learning rate of the optimiser.
        weight_decay: Weight decay; 0 for none.
        epochs: Number of passes over all training rows.
        batch_size: Rows in one step of the optimiser.
        validation_share: Share of the rows that is held out, above 0 and below 1.
        thresholds: Rule by which the threshold of each class is learnt from the held-out rows:
            pooled-f1, expected-f1 or shares; half is 0.5 for all.
        priors: Where methods that want class frequencies get them from: estimated by a short
            training before the run, or published (fixed numbers).
        random_state: Seed of everything random: split, initial weights, order of the rows, dropout.
            A number gives the same result every time, None another one every time.
        verbose: 1 prints a line per epoch; 0 prints nothing.

    Attributes:
        classes_: (C,) the classes, in the order of all columns: the sorted ids of y, or the column
            names of a data frame, or 0, 1, ... for a matrix.
        thresholds_: (C,) probability from which on each class is predicted.
        class_frequencies_: (C,) estimated share of rows that show each class.
        frequencies_reason_: Whether these shares can be trusted, and why, in a sentence.
        complete_: (N, C) completed labels of the rows that `fit` was given, 0 or 1: observed ones
            as observed, the others as predicted. They are predictions for rows that were trained
            on, and thus more certain than those for new rows.
        n_features_in_: Number of features, or of bands of images.
        model_files_: The network as the two files of a run folder, by name: model.safetensors and
            model.json. `adagc.load_model` takes them, and so does a pickled estimator.
    """

    def __init__(
        self,
        method: str = DEFAULT,
        *,
        options: Mapping[str, Any] | None = None,
        backbone: str = "auto",
        hidden: int = 512,
        dropout: float = 0.5,
        learning_rate: float = 3e-4,
        weight_decay: float = 0.0,
        epochs: int = 40,
        batch_size: int = 32,
        validation_share: float = 0.2,
        thresholds: str = "pooled-f1",
        priors: str = "estimated",
        random_state: int | np.random.RandomState | None = 0,
        verbose: int = 0,
    ) -> None:
        self.method = method
        self.options = options
        self.backbone = backbone
        self.hidden = hidden
        self.dropout = dropout
        self.learning_rate = learning_rate
        self.weight_decay = weight_decay
        self.epochs = epochs
        self.batch_size = batch_size
        self.validation_share = validation_share
        self.thresholds = thresholds
        self.priors = priors
        self.random_state = random_state
        self.verbose = verbose

    # -- fitting -----------------------------------------------------------------------------

    def fit(self, X: Any, y: Any) -> Self:
        """Learn from one label per row.

        Args:
            X: (N, D) embeddings or other features, or (N, bands, height, width) images.
            y: Observed labels in one of three forms. (N,) one class id per row, numbers or text.
                (N, C) with a 1 for each observed class and 0 elsewhere. (N, C) with three values:
                +1 seen, 0 not known, -1 seen to be absent. A row may have several +1, and a row
                without any is completed but not trained on.
        """
        columns = getattr(y, "columns", None)
        X, y = validate_data(self, X, y, multi_output=True, ensure_min_samples=2, **_accepted(X))
        known = targets(y, columns=columns)
        if len(known.classes) < 2:
            raise InputError("y has a single class, which tells nothing apart: give at least two")
        from adagc.priors import estimate
        from adagc.training.held_out import of_network

        with self._quietly():
            run = self._trained(_images(X), known)
            held = of_network(run, run.history[-1].deployed, "last")
            estimated = estimate(held.probabilities, held.observed)
        files = run.files.models
        assert isinstance(files, dict)  # a run in memory
        self.classes_ = known.classes
        self.model_files_ = {name: files[name] for name in ("model.safetensors", "model.json")}
        self._network = run.model()
        self.thresholds_ = self._network.thresholds.numpy().copy()
        self.class_frequencies_ = estimated.frequencies
        self.frequencies_reason_ = estimated.reason
        decided = self._probabilities(X) >= self.thresholds_
        self.complete_ = np.where(known.values == 0, decided, known.values > 0).astype(np.int8)
        return self

    def _trained(self, images: ArrayScenes, known: Targets) -> Run:
        """Train in memory on these rows; only rows with a label are used."""
        from adagc.datasets.array import DATASET
        from adagc.datasets.assemble import collect
        from adagc.labels import LabelTable
        from adagc.training.config import RunConfig
        from adagc.training.experiment import train

        seed = int(check_random_state(self.random_state).randint(_SEEDS))
        share = self.validation_share
        if not 0 < share < 1:
            raise InputError(f"validation_share must be above 0 and below 1, not {share}")
        table = LabelTable(images.names, known.names, known.values)
        known_settings = read(RunConfig)
        given = {
            name: _plain(value) for name, value in vars(self).items() if name in known_settings
        }
        settings = typed(known_settings, given, type(self).__name__, "help(adagc.RunConfig)")
        config = RunConfig(data=DATASET.name, seed=seed, **settings)
        collection = collect(images, labels=table, seed=seed, val_share=share, test_share=0.0)
        return train(
            config,
            self._made(),
            collection=collection,
            labels=table,
            on_epoch=self._tell if self.verbose else None,
        )

    def _made(self) -> Method:
        """A new object of the method, with its options."""
        method = find(self.method)
        given = {name: _plain(value) for name, value in (self.options or {}).items()}
        see = f"adagc methods {method.title!r}"
        return method(**typed(read(method), given, method.title, see))

    def _tell(self, record: EpochRecord) -> None:
        print(f"epoch {record.epoch} of {self.epochs}: {record.in_words}")

    @contextmanager
    def _quietly(self) -> Iterator[None]:
        """No progress bars unless asked for; errors of ours as scikit-learn expects them."""
        try:
            with nullcontext() if self.verbose else sent_to(None):
                yield
        except InputError:
            raise
        except AdagcError as error:
            raise InputError(str(error)) from error

    # -- predicting --------------------------------------------------------------------------

    def predict_proba(self, X: Any) -> NDArray[np.float32]:
        """(N, C) probability of each class, in the order of `classes_`; they do not add up to 1."""
        check_is_fitted(self)
        X = validate_data(self, X, reset=False, **_accepted(X))
        with self._quietly():
            return self._probabilities(X)

    def predict(self, X: Any) -> NDArray[np.int64]:
        """(N, C) 1 for every class whose probability reaches its threshold, and else 0."""
        decided = self.predict_proba(X) >= self.thresholds_
        return decided.astype(np.int64)

    def score(self, X: Any, y: Any) -> float:
        """How well rows are ranked for each class, between 0 and 1; larger is better.

        If y has all labels (a matrix of 0 and 1 in which some row has several), this is the mean
        average precision over the classes that occur. Of observed labels, such as the one label per
        row that `fit` takes, most are missing, and a mean average precision would reward networks
        that do not find them: this is then the mean over classes of the probability that a row with
        the label scores above a row without it. The missing labels lower it for all networks alike,
        so it can choose between them. The two cannot be compared with each other.

        Args:
            X: As for `fit`.
            y: All labels, or observed ones in any form that `fit` takes.
        """
        probabilities = self.predict_proba(X)
        columns = getattr(y, "columns", None)
        known = targets(y, columns=columns, classes=self.classes_)
        if len(known.values) != len(probabilities):
            raise InputError(f"X has {len(probabilities)} rows and y {len(known.values)}")
        if known.complete:
            return float(np.nanmean(average_precision(known.values > 0, probabilities)))
        return auc(known.values, probabilities)

    def _probabilities(self, X: NDArray[Any]) -> NDArray[np.float32]:
        from adagc.inference import predict
        from adagc.training.network import suited

        spec = self._network.spec
        images = suited(_images(X), plain=spec.is_plain, head=spec.head)
        return predict(self._network, images, np.arange(len(images)))

    # -- pickling and tags -------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        state = dict(super().__getstate__())
        state.pop("_network", None)  # made again from `model_files_`, without torch's pickle
        return state

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if "model_files_" in state:
            from adagc.models import load_model

            self._network = load_model(self.model_files_)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = True
        tags.classifier_tags.multi_label = True
        tags.target_tags.multi_output = True
        return tags


def _accepted(X: Any) -> dict[str, Any]:
    """What scikit-learn's validation lets through: features, or images of four axes."""
    return {
        "dtype": _KINDS,
        "ensure_all_finite": "allow-nan",
        "allow_nd": getattr(X, "ndim", 2) == 4,
    }


def _plain(value: Any) -> Any:
    """A number of numpy, of which grids of parameters are often made, as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _images(X: NDArray[Any]) -> ArrayScenes:
    from adagc.images.array import ArrayScenes

    return ArrayScenes(X, source="X")
