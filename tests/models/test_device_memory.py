"""Memory is reckoned before it is taken: weights to the byte, caches by layout."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs

from engine.config.errors import UserError
from engine.config.methods import CORRECT_METHODS
from engine.config.settings import Sampling, Settings
from engine.evaluation.compare import Compare
from engine.models import device_memory as memory
from engine.models.memory_estimate import Need, cells, demand_of, need_of, sizes_of, together
from engine.pairs import device_map, load, sizes_on_disk
from engine.pairs import memory_check as room
from engine.pairs.export import export_pair
from engine.pairs.job import Workload
from engine.pairs.load import load_pair
from engine.pairs.registry import PairRequest
from engine.runs.run import Run
from engine.text.prompts import PromptEntry
from tests.tiny import prompts_of, tiny_pair

PAIR = tiny_pair(eos_ids=())
PROMPTS = prompts_of([[3 + (7 * i + n) % 30 for i in range(12 + n)] for n in range(6)])
LENGTHS = [len(prompt.ids) for prompt in PROMPTS]
SETTINGS = Settings(batch_size=6, window=6, draft_tokens=3, max_new_tokens=60)
CPU = torch.device("cpu")


@pytest.fixture
def exported(tmp_path: Path, home: Path) -> Path:
    pair = load_pair(PairRequest(name="toy"), device="cpu", dtype="float32")
    export_pair(pair, tmp_path / "toy", lambda stage, fraction: None)
    return tmp_path / "toy"


def free(monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    for module in (memory, room, device_map):
        monkeypatch.setattr(module, "free_bytes", lambda device: count)


class TestCaches:
    @pytest.mark.parametrize("method", CORRECT_METHODS)
    def test_what_is_reckoned_is_what_is_taken(self, method: str) -> None:
        settings = structs.replace(SETTINGS, method=method)
        run = Run(PAIR, settings, PROMPTS)
        most = 0
        while run.loop.step() is not None:
            stores = [store for store in run.loop.layout.stores if store.buffers]
            most = max(most, sum(store.allocated_bytes for store in stores))
        demand = demand_of(settings, LENGTHS, PAIR.target.context)
        models = [PAIR.target] if method == "autoregressive" else [PAIR.target, PAIR.draft]
        reckoned = sum(need_of(sizes_of(model), demand).kv for model in models if model)
        assert 0.85 * most < reckoned < 1.25 * most

    def test_the_context_bounds_a_row(self) -> None:
        assert demand_of(SETTINGS, [100], 128).columns == 128

    def test_a_plain_run_drafts_nothing(self) -> None:
        settings = structs.replace(SETTINGS, method="autoregressive")
        assert demand_of(settings, LENGTHS, 128).room == 1

    def test_no_rows_need_next_to_nothing(self) -> None:
        assert cells(demand_of(SETTINGS, [], 128), 2) > 0

    def test_sampling_and_inspecting_need_more(self) -> None:
        sizes = replace(sizes_of(PAIR.target), itemsize=2)
        plain = need_of(sizes, demand_of(SETTINGS, LENGTHS, 128))
        for more in (
            structs.replace(SETTINGS, inspect=True),
            structs.replace(SETTINGS, sampling=Sampling(temperature=1.0)),
            structs.replace(SETTINGS, sampling=Sampling(temperature=1.0, top_p=0.9)),
        ):
            need = need_of(sizes, demand_of(more, LENGTHS, 128))
            assert need.logits > plain.logits
            assert need.kv == plain.kv


class TestLanes:
    def test_side_by_side_caches_add_up_and_weights_do_not(self) -> None:
        one = Need(weights=100, kv=10, logits=5, work=2)
        assert together([one] * 4) == Need(weights=100, kv=40, logits=5, work=2)

    def test_four_lanes_may_not_fit_where_one_does(self, monkeypatch: pytest.MonkeyPatch) -> None:
        models = (sizes_of(PAIR.target), CPU), (sizes_of(PAIR.draft), CPU)  # type: ignore[arg-type]
        (need,) = memory.needs(*models, [demand_of(SETTINGS, LENGTHS, 128)]).values()
        monkeypatch.setattr(memory, "free_bytes", lambda device: need.total)
        Run(PAIR, SETTINGS, PROMPTS)
        lanes = [structs.replace(SETTINGS, method=name) for name in CORRECT_METHODS[1:]]
        with pytest.raises(UserError, match=r"4 runs side by side need .* lower --batch-size to"):
            next(Compare(PAIR, lanes, PROMPTS).records())


class TestAdvice:
    def refused(self, share: float, **changes: Any) -> str:
        settings = structs.replace(SETTINGS, **changes)
        placed = (replace(sizes_of(PAIR.target), weights=10**9), CPU)

        def demand(chosen: Settings) -> Any:
            return demand_of(chosen, [40] * 64, 10**6)

        (need,) = memory.needs(placed, None, [demand(settings)]).values()
        there = int(share * (need.total - 10**9)) + 10**9
        with pytest.raises(UserError) as caught:
            memory.require(placed, None, [settings], demand, free={CPU: there})
        return str(caught.value)

    def test_it_names_the_largest_batch_that_fits(self) -> None:
        said = self.refused(0.9, batch_size=64, max_new_tokens=20_000)
        assert "lower --batch-size to 57" in said
        assert said.startswith("this run needs about")
        assert "weights 1.0, K/V" in said

    def test_else_the_largest_budget(self) -> None:
        said = self.refused(0.9, batch_size=1, max_new_tokens=500_000)
        assert "lower --max-new-tokens to 4" in said

    def test_weights_that_do_not_fit_have_ways_out(self) -> None:
        placed = (replace(sizes_of(PAIR.target), weights=10**9, itemsize=4), CPU)
        with pytest.raises(UserError, match=r"--dtype bfloat16 halves them; else take a smaller"):
            memory.require(
                placed, None, [SETTINGS], lambda s: demand_of(s, [5], 128), free={CPU: 10**8}
            )


class TestWeights:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
    def test_a_directory_is_weighed_to_the_byte(
        self, exported: Path, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sizes_on_disk, "packs", lambda dtype, device: False)
        directory = exported / "target"
        sizes = sizes_on_disk.sizes_of_directory(
            directory, sizes_on_disk.config_of(directory, "toy"), dtype, CPU
        )
        pair = load_pair(
            PairRequest(target=str(directory), draft="lookup"), device="cpu", dtype=str(dtype)[6:]
        )
        held = sum(weight.nbytes for weight in pair.target.hf.parameters())
        assert sizes.weights == held
        assert replace(sizes, weights=0) == sizes_of(pair.target)

    def test_copies_for_the_processor_are_counted(
        self, exported: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(sizes_on_disk, "packs", lambda dtype, device: True)
        monkeypatch.setattr(sizes_on_disk, "SMALLEST", 1)
        directory = exported / "target"
        config = sizes_on_disk.config_of(directory, "toy")
        sizes = sizes_on_disk.sizes_of_directory(directory, config, torch.float32, CPU)
        shapes = sizes_on_disk.shapes_in(directory / "model.safetensors")
        table = 4 * config.vocab_size * config.hidden_size
        norms = 4 * sum(shape[0] for shape in shapes.values() if len(shape) == 1)
        monkeypatch.setattr(sizes_on_disk, "packs", lambda dtype, device: False)
        bare = sizes_on_disk.sizes_of_directory(directory, config, torch.float32, CPU).weights
        assert sizes.weights == 2 * bare - table - norms

    def test_what_does_not_fit_is_refused_before_it_is_loaded(
        self, exported: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def never(*given: Any, **named: Any) -> Any:
            raise AssertionError("the weights were loaded")

        monkeypatch.setattr(load, "load_model", never)
        free(monkeypatch, 120 << 20)
        request = PairRequest(target=str(exported / "target"), draft=str(exported / "draft"))
        prompts = (PromptEntry(text="the river"),) * 64
        with pytest.raises(UserError, match=r"on cpu \(weights .* lower --batch-size to \d+$"):
            load_pair(
                request,
                device="cpu",
                dtype="float32",
                workload=Workload((Settings(batch_size=64, max_new_tokens=4000),), prompts),
            )

    def test_a_broken_file_is_named(self, tmp_path: Path) -> None:
        (tmp_path / "model.safetensors").write_bytes(b"no weights")
        with pytest.raises(UserError, match=r"cannot load .*model\.safetensors"):
            sizes_on_disk.shapes_in(tmp_path / "model.safetensors")


class TestSeveralGpus:
    CUDA = torch.device("cuda")
    NEED = Need(weights=30, kv=10)

    @pytest.fixture(autouse=True)
    def two(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
        monkeypatch.setattr(device_map, "find_spec", lambda name: object())
        free(monkeypatch, 24)

    def test_a_target_that_fits_on_one_stays_there(self) -> None:
        assert device_map.spread_over(self.CUDA, self.NEED, 40) is None

    def test_a_larger_one_goes_to_all_with_room_for_the_rest(self) -> None:
        found = device_map.spread_over(self.CUDA, self.NEED, 24)
        assert found == {0: 24, 1: 24}
        assert device_map.shares(found, self.NEED) == {0: 19, 1: 19}

    def test_not_where_one_is_named_or_the_cpu_is(self) -> None:
        assert device_map.spread_over(torch.device("cuda:1"), self.NEED, 24) is None
        assert device_map.spread_over(CPU, self.NEED, 24) is None

    def test_without_accelerate_the_way_out_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(device_map, "find_spec", lambda name: None)
        with pytest.raises(UserError, match=r"pip install 'batchspec-tui\[multi-gpu\]'"):
            device_map.spread_over(self.CUDA, self.NEED, 24)


def test_a_containers_limit_counts(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 400\ninactive_file 200\n")
    assert memory._container_free(tmp_path) == 500
    (tmp_path / "memory.max").write_text("max\n")
    assert memory._container_free(tmp_path) > 1 << 40
