"""Models by name: directories, the hub's cache, and the hub, which is made up here."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from huggingface_hub import constants

from engine.config.errors import UserError
from engine.pairs import hub, hub_download
from engine.pairs.registry import PairRequest, resolve, split_revision

NAME = "org/model"
FIRST, SECOND = "1" * 40, "2" * 40
FILES = {
    "config.json": b"{}",
    "tokenizer.json": b"{}",
    "model-1.safetensors": b"a" * 4000,
    "model-2.safetensors": b"b" * 6000,
    "model.safetensors.index.json": (
        b'{"weight_map": {"x": "model-1.safetensors", "y": "model-2.safetensors"}}'
    ),
    "pytorch_model.bin": b"old",
    "README.md": b"read me",
    "onnx/model.onnx": b"other",
}


class Hub:
    """A hub with one model, and its client's two calls."""

    def __init__(self, cache: Path) -> None:
        self.home = cache / "models--org--model"
        self.commit = FIRST
        self.there = True
        self.asked = 0
        self.slow = False
        self.fetched: list[str] = []
        self.broken = ""

    def ask(self, name: str, revision: str | None) -> Any:
        self.asked += 1
        if not self.there:
            raise OSError("Name or service not known")
        files = [SimpleNamespace(rfilename=n, size=len(data)) for n, data in FILES.items()]
        return SimpleNamespace(sha=self.commit, siblings=files)

    def download(self, name: str, file: str, *, revision: str, cache_dir: str) -> str:
        if file == self.broken:
            raise OSError("connection lost\nat some line")
        commit = revision if len(revision) == 40 else self.commit
        if commit != revision:
            (self.home / "refs").mkdir(parents=True, exist_ok=True)
            (self.home / "refs" / revision).write_text(commit)
        place = self.home / "snapshots" / commit / file
        if not place.exists():
            self.fetched.append(file)
            place.parent.mkdir(parents=True, exist_ok=True)
            blobs = self.home / "blobs"
            blobs.mkdir(exist_ok=True)
            half = blobs / "x.incomplete"
            half.write_bytes(FILES[file][: len(FILES[file]) // 2])
            if self.slow:
                time.sleep(0.1)
            half.unlink()
            place.write_bytes(FILES[file])
        return str(place)


@pytest.fixture
def made_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    found = Hub(tmp_path)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(hub, "_ask", found.ask)
    monkeypatch.setattr(hub_download, "hf_hub_download", found.download)
    monkeypatch.setattr(hub_download, "_LOOK", 0.01)
    return found


def test_what_loading_needs_is_fetched_the_weights_last(made_up: Hub) -> None:
    place = hub.obtain(NAME)
    assert place == made_up.home / "snapshots" / FIRST
    assert sorted(made_up.fetched[:3]) == [
        "config.json",
        "model.safetensors.index.json",
        "tokenizer.json",
    ]
    assert made_up.fetched[3:] == ["model-1.safetensors", "model-2.safetensors"]
    assert hub.weight_files(place) == [place / "model-1.safetensors", place / "model-2.safetensors"]


def test_progress_is_by_bytes_and_only_grows(made_up: Hub) -> None:
    made_up.slow = True
    stages: list[tuple[str, float | None]] = []
    hub.obtain(NAME, progress=lambda stage, fraction: stages.append((stage, fraction)))
    assert stages[0] == ("asking the hub for org/model", None)
    fractions = [
        fraction for stage, fraction in stages if stage.startswith("downloading org/model")
    ]
    assert fractions == sorted(fractions, key=lambda fraction: fraction or 0.0)
    assert fractions[-1] == 1.0
    # half of a file is seen while it is on its way
    total = sum(len(FILES[name]) for name in made_up.fetched)
    assert any(abs((f or 0.0) - (total - 3000) / total) < 0.01 for f in fractions)


def test_what_the_cache_holds_asks_nobody(made_up: Hub) -> None:
    first = hub.obtain(NAME)
    assert hub.obtain(NAME) == first
    assert made_up.asked == 1
    assert hub.is_here(NAME)


def test_fetching_brings_it_up_to_date(made_up: Hub) -> None:
    hub.obtain(NAME)
    made_up.commit = SECOND
    assert hub.obtain(NAME).name == FIRST
    assert hub.obtain(NAME, newest=True).name == SECOND
    assert hub.obtain(NAME).name == SECOND


def test_a_pinned_revision_is_another_one(made_up: Hub) -> None:
    hub.obtain(NAME)
    made_up.commit = SECOND
    assert hub.obtain(NAME, "v2").name == SECOND
    assert hub.obtain(NAME).name == FIRST


def test_a_broken_download_is_reported_and_goes_on_next_time(made_up: Hub) -> None:
    made_up.broken = "model-2.safetensors"
    with pytest.raises(UserError, match=r"connection lost.*what was fetched is kept"):
        hub.obtain(NAME)
    assert not hub.is_here(NAME)
    made_up.broken = ""
    made_up.fetched.clear()
    hub.obtain(NAME)
    assert made_up.fetched == ["model-2.safetensors"]


def test_without_network_the_cache_will_do_though_something_is_missing(made_up: Hub) -> None:
    place = hub.obtain(NAME)
    (place / "tokenizer.json").unlink()
    made_up.there = False
    assert hub.obtain(NAME) == place
    (place / "model-2.safetensors").unlink()
    with pytest.raises(UserError, match="Name or service not known"):
        hub.obtain(NAME)


def test_progress_can_cancel_a_download(made_up: Hub) -> None:
    def cancel(stage: str, fraction: float | None) -> None:
        if fraction is not None and fraction > 0.2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        hub.obtain(NAME, progress=cancel)
    assert not hub.is_here(NAME)


def test_the_old_kind_of_weights_is_taken_where_there_is_no_other() -> None:
    names = ["config.json", "pytorch_model-1.bin", "pytorch_model.bin.index.json", "x.safetensors"]
    assert hub.needed(names) == ["config.json", "x.safetensors"]
    assert hub.needed(names[:3]) == [
        "config.json",
        "pytorch_model.bin.index.json",
        "pytorch_model-1.bin",
    ]


def test_a_revision_is_part_of_a_name_and_no_part_of_a_path(tmp_path: Path) -> None:
    assert split_revision("org/model@v1") == ("org/model", "v1")
    assert split_revision("org/model") == ("org/model", None)
    odd = tmp_path / "a@b"
    odd.mkdir()
    assert split_revision(str(odd)) == (str(odd), None)
    spec = resolve(PairRequest(name="qwen3", draft="org/small@abc"))
    assert (spec.draft, spec.draft_revision, spec.draft_name) == (
        "org/small",
        "abc",
        "org/small@abc",
    )


def test_sizes_are_given_in_words() -> None:
    assert hub_download.size_in_words(13_476_900_000) == "13.5 GB"
    assert hub_download.size_in_words(740_000_000) == "740 MB"
