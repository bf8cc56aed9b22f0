from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from adagc.datasets.bigearthnet.generate import generate
from adagc.datasets.bigearthnet.opening import bigearthnet_collection
from adagc.datasets.bigearthnet.prepare import prepare
from adagc.images.memory import Recycled

SHAPE = (4, 3, 200, 200)  # 1.9 MB of floats


def address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def test_memory_comes_back_when_nothing_refers_to_it():
    memory = Recycled()
    first = memory.empty(SHAPE, np.float32)
    assert (first.shape, first.dtype) == (SHAPE, np.float32)
    assert first.flags.writeable
    assert first.flags.c_contiguous
    place = address(first)
    second = memory.empty(SHAPE, np.float32)
    assert address(second) != place
    del first
    # The system would give the place that became free to this one.
    other = np.empty(SHAPE, np.float32)
    assert address(other) != place
    third = memory.empty((SHAPE[0] - 1, *SHAPE[1:]), np.float32)
    assert address(third) == place


def test_memory_in_use_is_never_lent_again():
    memory = Recycled()
    array = memory.empty(SHAPE, np.float32)
    array[...] = 7
    held = [array[1:, :, ::2], torch.from_numpy(array)[2], array.reshape(-1).view(np.uint32)]
    place = address(array)
    del array
    while held:
        other = memory.empty(SHAPE, np.float32)
        other[...] = 8
        assert address(other) != place
        assert (np.asarray(held.pop()).view(np.float32) == 7).all()
    kept = [memory.empty(SHAPE, np.float32) for _ in range(2)]
    assert place in {address(array) for array in kept}


def test_what_waits_does_not_grow():
    memory = Recycled()
    several = [memory.empty(SHAPE, np.float32) for _ in range(6)]
    places = {address(array) for array in several}
    del several
    again = [memory.empty(SHAPE, np.float32) for _ in range(6)]
    assert len(places & {address(array) for array in again}) >= 2
    assert len(memory._free) == 0
    del again
    assert len(memory._free) == 2
    memory.empty((4, *SHAPE), np.float32)  # what is too small for it is given up
    assert len(memory._free) == 1


def test_threads_share_it():
    memory = Recycled()

    def use(number: int) -> bool:
        array = memory.empty(SHAPE, np.float32)
        array[...] = number
        return bool((array == number).all())

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(use, range(400)))


def test_it_is_not_sent_to_other_processes():
    memory = Recycled()
    memory.empty(SHAPE, np.float32)
    assert len(pickle.dumps(memory)) < 200
    assert pickle.loads(pickle.dumps(memory)).empty(SHAPE, np.float32).shape == SHAPE


def test_batches_of_patches_use_the_same_memory(tmp_path):
    made = generate(tmp_path / "reBEN", 8, cloudy=0)
    prepare(made.root, tmp_path / "store")
    images = bigearthnet_collection(tmp_path / "store").images
    rows = np.arange(8).repeat(4)
    wanted = images.gather(rows)
    found = images.gather(rows)
    place = address(found)
    del found
    other = np.empty_like(wanted)  # the system would give the place that became free to this one
    again = images.gather(rows)
    assert address(other) != place
    assert address(again) == place
    assert (again == wanted).all()
    images.gather(rows[::-1])
    assert (again == wanted).all()
