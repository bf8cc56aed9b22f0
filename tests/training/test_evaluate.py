from __future__ import annotations

import numpy as np
import pytest
import torch

from adagc.metrics import average_precision, score
from adagc.training.evaluate import Oracle, predict
from conftest import TinyCNN, make_classifier, make_collection


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
KNOWN = (TRUTH, np.ones(4, dtype=bool))
NOTHING = (TRUTH, np.zeros(4, dtype=bool))


def test_only_images_with_known_truth_are_judged():
    known = np.array([True, True, False, True])
    record = Oracle((TRUTH, known), (TRUTH, known), OBSERVED)({"network": ESTIMATES}, ESTIMATES)
    alone = Oracle((TRUTH[known], known[known]), (TRUTH[known], known[known]), OBSERVED[known])
    assert record == alone({"network": ESTIMATES[known]}, ESTIMATES[known])
    wrong = TRUTH.copy()
    wrong[2] = ~wrong[2]  # an unknown row holds anything
    again = Oracle((wrong, known), (wrong, known), OBSERVED)({"network": ESTIMATES}, ESTIMATES)
    assert again == record


def test_pseudo_labels_are_judged_where_nobody_looked():
    record = Oracle(NOTHING, KNOWN, OBSERVED)({}, ESTIMATES)["pseudo_labels"]
    # Unknown and said (>= .5): (0,1) right, (0,2) wrong, (2,1) wrong, (3,0) right.
    # Unknown and true: (0,1), (1,2), (3,0), (3,1).
    assert record["precision"] == pytest.approx(2 / 4)
    assert record["recall"] == pytest.approx(2 / 4)
    assert record["f1"] == pytest.approx(0.5)
    assert record["added_per_image"] == pytest.approx(4 / 4)
    wanted = np.nanmean(average_precision(TRUTH, ESTIMATES))
    assert record["mean_average_precision"] == pytest.approx(wanted)


def test_validation_is_scored_per_network():
    predictions = {"network": ESTIMATES, "teacher": 1 - ESTIMATES}
    record = Oracle(KNOWN, NOTHING, OBSERVED)(predictions, ESTIMATES)
    assert "pseudo_labels" not in record
    for name, values in predictions.items():
        assert record["validation"][name] == score(TRUTH, values, absent="skip").summary()


def test_an_oracle_without_labels_or_estimates_says_nothing():
    assert Oracle(NOTHING, NOTHING, OBSERVED)({"network": ESTIMATES}, ESTIMATES) == {}
    assert Oracle(NOTHING, KNOWN, OBSERVED)({"network": ESTIMATES}, None) == {}


def test_nothing_said_is_no_division_by_zero():
    record = Oracle(NOTHING, KNOWN, OBSERVED)({}, np.full((4, 3), 0.1, np.float32))["pseudo_labels"]
    assert record["precision"] == record["recall"] == record["f1"] == 0
