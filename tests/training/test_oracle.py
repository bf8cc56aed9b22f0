from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from adagc.inference import predict
from adagc.metrics import average_precision, score
from adagc.training.oracle import Oracle, Pair
from adagc.training.records import OracleRecord
from conftest import TinyCNN, make_classifier, make_collection
from reference import slow_theory


@pytest.mark.parametrize("size", [1, 5, 64])
def test_every_row_is_predicted_in_order(size):
    collection = make_collection("images")
    network = TinyCNN()
    network(torch.rand(8, 3, 6, 6) * 200)  # statistics worth having
    rows = np.array([9, 2, 2, 40, 63, 0, 11])
    found = predict(network, collection.images, rows, batch_size=size)
    with torch.no_grad():
        z = network.eval()(torch.from_numpy(collection.images.gather(rows)).float())
    assert found.shape == (7, 4)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, z.sigmoid().numpy(), rtol=1e-4)
    np.testing.assert_allclose(found[1], found[2], rtol=1e-6)


def test_predicting_leaves_the_network_as_it_was():
    collection = make_collection("images")
    network = TinyCNN()
    before = {k: v.clone() for k, v in network.state_dict().items()}
    for training in (True, False):
        network.train(training)
        predict(network, collection.images, collection.splits["val"])
        assert network.training is training
        assert network[1].training is training
    assert all(torch.equal(v, before[k]) for k, v in network.state_dict().items())


def test_dropout_is_off():
    collection = make_collection()
    network = make_classifier(dropout=0.9).train()
    rows = collection.splits["val"]
    one, two = (predict(network, collection.images, rows) for _ in range(2))
    np.testing.assert_array_equal(one, two)


TRUTH = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [1, 1, 1]], dtype=bool)
OBSERVED = np.array([[1, 0, 0], [0, 1, 0], [1, 0, -1], [0, 0, 1]], dtype=np.int8)
ESTIMATES = np.array(
    [[0.9, 0.8, 0.6], [0.1, 0.9, 0.4], [0.9, 0.5, 0.9], [0.7, 0.2, 0.9]], np.float32
)
KNOWN = Pair(TRUTH, np.ones(4, dtype=bool), OBSERVED)
NOTHING = Pair(TRUTH, np.zeros(4, dtype=bool), OBSERVED)


def test_only_images_with_known_truth_are_judged():
    known = np.array([True, True, False, True])
    some = Pair(TRUTH, known, OBSERVED)
    record = Oracle(some, some)({"network": ESTIMATES}, ESTIMATES)
    those = Pair(TRUTH[known], known[known], OBSERVED[known])
    assert record == Oracle(those, those)({"network": ESTIMATES[known]}, ESTIMATES[known])
    wrong = TRUTH.copy()
    wrong[2] = ~wrong[2]  # an unknown row holds anything
    other = Pair(wrong, known, OBSERVED)
    assert Oracle(other, other)({"network": ESTIMATES}, ESTIMATES) == record


def test_pseudo_labels_are_judged_where_nobody_looked():
    record = Oracle(NOTHING, KNOWN)({}, ESTIMATES).pseudo_labels
    # Unknown and said (>= .5): (0,1) right, (0,2) wrong, (2,1) wrong, (3,0) right.
    # Unknown and true: (0,1), (1,2), (3,0), (3,1).
    assert record.precision == pytest.approx(2 / 4)
    assert record.recall == pytest.approx(2 / 4)
    assert record.f1 == pytest.approx(0.5)
    assert record.added_per_image == pytest.approx(4 / 4)
    wanted = np.nanmean(average_precision(TRUTH, ESTIMATES))
    assert record.mean_average_precision == pytest.approx(wanted)


def test_validation_is_scored_per_network():
    predictions = {"network": ESTIMATES, "teacher": 1 - ESTIMATES}
    record = Oracle(KNOWN, NOTHING)(predictions, ESTIMATES)
    assert record.pseudo_labels is None
    for name, values in predictions.items():
        assert record.validation[name].to_dict() == score(TRUTH, values, absent="skip").summary()


def test_an_oracle_without_labels_or_estimates_says_nothing():
    assert Oracle(NOTHING, NOTHING)({"network": ESTIMATES}, ESTIMATES) == OracleRecord()
    assert Oracle(NOTHING, KNOWN)({"network": ESTIMATES}, None) == OracleRecord()


def test_nothing_said_is_no_division_by_zero():
    record = Oracle(NOTHING, KNOWN)({}, np.full((4, 3), 0.1, np.float32)).pseudo_labels
    assert record.precision == record.recall == record.f1 == 0


def test_classes_are_compared_with_what_was_observed_of_them():
    record = Oracle(KNOWN, NOTHING)({"network": ESTIMATES}, None).to_dict()
    assert record["labels"] == {"true": [3, 3, 2], "flipped": [1, 2, 1], "wrong": [0, 0, 0]}
    found = record["classes"]["network"]
    # First class: .9 .9 .7 true, .1 not; the two at .9 observed.
    assert found["clean_ap"][0] == found["noisy_ap"][0] == 1
    assert found["recall"][0] == found["alpha"][0] == 1
    # Second: true .9 .8 .2, between them .5; only the .9 observed, of .8 and .2 one predicted.
    assert found["clean_ap"][1] == round((1 + 1 + 3 / 4) / 3, 5)
    assert found["noisy_ap"][1] == 1
    assert found["recall"][1] == round(2 / 3, 5)
    assert found["alpha"][1] == 0.5


@given(st.data())
def test_the_comparison_agrees_with_its_slow_twin(data):
    shape = (data.draw(st.integers(1, 8)), data.draw(st.integers(1, 3)))
    truth = data.draw(arrays(np.bool_, shape))
    observed = data.draw(arrays(np.int8, shape, elements=st.integers(-1, 1)))
    levels = st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0])  # ties are where counting goes wrong
    values = data.draw(arrays(np.float32, shape, elements=levels))
    pair = Pair(truth, np.ones(len(truth), dtype=bool), observed)
    record = Oracle(pair, pair)({"network": values}, None).to_dict()
    if not truth.any():
        assert record == {}
        return
    assert record["labels"] == slow_theory.count(truth, observed)
    found = record["classes"]["network"]
    wanted = slow_theory.compare(truth.tolist(), observed.tolist(), values.tolist())
    for name, column in wanted.items():
        assert [value is None for value in found[name]] == [value != value for value in column]
        told = [np.nan if value is None else value for value in found[name]]
        np.testing.assert_allclose(told, column, atol=6e-6)
    # Strict JSON, and short: it is written for every network in every epoch.
    text = json.dumps(record["classes"], allow_nan=False)
    assert len(text) < 100 + 4 * 10 * shape[1]


def test_the_record_is_the_same_whenever_it_is_made():
    """A continued run asks a new oracle: nothing may depend on what an old one has seen."""
    oracle = Oracle(KNOWN, KNOWN)
    first = oracle({"network": ESTIMATES}, ESTIMATES)
    oracle({"network": 1 - ESTIMATES}, ESTIMATES)
    assert oracle({"network": ESTIMATES}, ESTIMATES) == first
    assert Oracle(KNOWN, KNOWN)({"network": ESTIMATES}, ESTIMATES) == first
