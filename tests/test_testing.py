"""`adagc.testing.check_method`: passes what is right, and names the rule that is broken."""

from __future__ import annotations

import doctest
import subprocess
import sys
import warnings

import pytest

import broken_methods as broken
from adagc.methods.adagc import AdaGC
from adagc.testing import NotCheckedWarning, check_method, checks, method_checks
from presence import Presence

FINDS = {
    broken.Losing: ("keeps its options", "option weight is not stored under its own name"),
    broken.Bending: ("keeps its options", "option weight is not stored as it was given"),
    broken.Swallowing: ("keeps its options", "takes any option"),
    broken.Peeking: ("declares what it needs", "where the task has truth"),
    broken.Silent: ("says in one line what is missing", "has no truth"),
    broken.Scribbling: ("leaves the batch alone", "batch.images"),
    broken.Rewriting: ("leaves the batch alone", "changes batch.observed in place"),
    broken.Dicing: ("draws from the batch alone", "loss draws from the randomness of torch"),
    broken.DicingSetup: ("draws from the batch alone", "setup draws from the randomness of torch"),
    broken.Forgetful: ("keeps its state in a checkpoint", "after loading its state the loss is"),
    broken.Detached: ("trains all of the network, embeddings", "no gradient reaches"),
    broken.PartlyTrained: ("trains all of the network, embeddings", "head.bias"),
    broken.Overflowing: ("stays finite, extreme logits", "the loss is nan"),
    broken.Pooling: ("refuses embeddings where positions matter", '"feature_map" is not in its'),
    broken.Timely: ("gives the same weights for the same seed", "has other weights"),
    broken.Counting: ("ends alike after interruptions", "differs from that of an uninterrupted"),
    broken.RankBound: ("trains on two ranks what one process trains", "network: "),
    broken.AloneWithItsPeer: ("trains on two ranks what one process trains", "I work alone"),
}


@pytest.mark.parametrize("cls", FINDS, ids=lambda cls: cls.__name__)
def test_a_broken_method_is_told_which_rule_it_breaks(cls):
    name, words = FINDS[cls]
    with pytest.raises(AssertionError) as caught:
        check_method(cls)
    message = str(caught.value)
    assert message.startswith(f"{cls.__name__} fails the check {name!r}: ")
    assert words in message.splitlines()[0]
    expected = dict(method_checks())[name].expects
    assert message.endswith(f"\n\nExpected: {expected}")
    assert len(expected.split()) > 8


def test_what_is_right_passes_without_being_registered():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_method(broken.Base)
        check_method(Presence)


def test_options_are_those_of_the_caller():
    check_method(AdaGC, weight=2.0, student_mode="train")
    with pytest.raises(AssertionError, match=r"method\.balance"):
        check_method(AdaGC, balance=2.0)


def test_what_cannot_be_checked_is_said():
    class Local(broken.Base):
        """Right, but no other process can import it."""

    with pytest.warns(NotCheckedWarning, match=r"trains on two ranks .*cannot import .*Local"):
        check_method(Local)


def test_an_error_inside_a_method_is_the_finding():
    class Raising(broken.Base):
        """Fails in any case."""

        def loss(self, network, batch, progress):
            raise KeyError("gone")

    with pytest.raises(AssertionError, match=r"of the network, embeddings': KeyError\('gone'\)"):
        check_method(Raising)


def test_a_loss_that_is_no_number_is_refused():
    with pytest.raises(AssertionError, match=r"the shape \(1,\)"):
        check_method(broken.Matrix)


def test_names_are_unique_and_cover_the_suite():
    names = [name for name, _ in method_checks()]
    assert len(names) == len(set(names)) == 22


def test_the_examples_of_the_docstrings_run():
    assert doctest.testmod(checks, optionflags=doctest.ELLIPSIS).failed == 0
    assert doctest.testmod(checks, optionflags=doctest.ELLIPSIS).attempted > 5


def test_it_needs_no_test_framework():
    code = "import sys; sys.modules['pytest'] = None; import adagc.testing; print('ok')"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "ok", done.stderr
