"""The registry: every way to learn, by the title that tables print."""

from __future__ import annotations

import difflib
import re

from adagc.errors import UsageError
from adagc.methods.adagc import AdaGC
from adagc.methods.assume_negative import AssumeNegative, LabelSmoothing, WeakAssumeNegative
from adagc.methods.asymmetric import AsymmetricLoss
from adagc.methods.base import Method
from adagc.methods.boost import BoostLU
from adagc.methods.dist_pu import DistPU
from adagc.methods.early_learning import EarlyLearning
from adagc.methods.entropy_maximisation import AsymmetricPseudoLabels, EntropyMaximisation
from adagc.methods.expected_positives import ExpectedPositives
from adagc.methods.generalized_robust import GeneralizedRobust
from adagc.methods.ground_truth import GroundTruth, IgnoreUnobserved
from adagc.methods.label_correlation import LabelCorrelation
from adagc.methods.lac import LAC
from adagc.methods.large_loss import LargeLossPermanent, LargeLossRejection, LargeLossTemporary
from adagc.methods.mime import MIME
from adagc.methods.rcml import RCML
from adagc.methods.role import Role, RoleOracle

_METHODS: tuple[type[Method], ...] = (
    GroundTruth,
    IgnoreUnobserved,
    AssumeNegative,
    LabelSmoothing,
    WeakAssumeNegative,
    ExpectedPositives,
    EarlyLearning,
    LargeLossPermanent,
    LargeLossTemporary,
    LargeLossRejection,
    BoostLU,
    DistPU,
    Role,
    RoleOracle,
    GeneralizedRobust,
    LAC,
    MIME,
    RCML,
    LabelCorrelation,
    AsymmetricLoss,
    EntropyMaximisation,
    AsymmetricPseudoLabels,
    AdaGC,
)


def registry() -> dict[str, type[Method]]:
    """Title to class, in the order of the paper's tables."""
    return {method.title: method for method in _METHODS}


def find(name: str) -> type[Method]:
    """A method by its title or class name; case, blanks and hyphens do not matter.

    "GT" is short for "GT w/ BCE".
    """
    known = {_key(title): method for title, method in registry().items()}
    known |= {_key(method.__name__): method for method in _METHODS}
    known["gt"] = GroundTruth
    if _key(name) in known:
        return known[_key(name)]
    close = difflib.get_close_matches(name, registry(), n=1, cutoff=0.5)
    hint = f"did you mean {close[0]}?" if close else "the known ones:"
    raise UsageError(f"unknown method {name!r}: {hint} ({', '.join(registry())})")


def _key(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


__all__ = ["Method", "find", "registry"]
