"""The memory estimate against what runs really take: `python -m tests.measure_memory`.

Each setting runs in a process of its own. Measured is the peak of the resident memory,
less what was resident when everything was imported and nothing loaded. The peak is taken
from the end of loading on: a checkpoint that is converted on the way is mapped meanwhile,
and the kernel takes those pages back when it needs them. Estimated is what the check before
loading reckons with. It takes some minutes, so it is no test.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

SETTINGS: dict[str, dict[str, Any]] = {
    "smollm2 bf16, eqspec, B 8": {"dtype": "bfloat16", "lanes": [{"batch_size": 8}]},
    "smollm2 fp32, slotspec, B 16, 192 new": {
        "dtype": "float32",
        "lanes": [{"method": "slotspec", "batch_size": 16, "max_new_tokens": 192}],
    },
    "smollm2 bf16, exspec, B 8, W 24": {
        "dtype": "bfloat16",
        "lanes": [{"method": "exspec", "batch_size": 8, "window": 24}],
    },
    "smollm2 bf16, four lanes, B 8": {
        "dtype": "bfloat16",
        "lanes": [
            {"method": name, "batch_size": 8, "max_new_tokens": 64}
            for name in ("eqspec", "exspec", "slotspec", "rollback")
        ],
    },
    "wide head 152 K, bf16, eqspec, B 32, K 7, sampled": {
        "wide": True,
        "dtype": "bfloat16",
        "sampling": {"temperature": 1.0, "top_p": 0.9},
        "lanes": [{"batch_size": 32, "draft_tokens": 7, "max_new_tokens": 24}],
    },
    "wide head 152 K, fp32, eqspec, B 32, K 7, as in the app": {
        "wide": True,
        "dtype": "float32",
        "lanes": [{"batch_size": 32, "draft_tokens": 7, "max_new_tokens": 24, "inspect": True}],
    },
}


def wide_pair(place: Path) -> dict[str, str]:
    """A random pair whose memory is mostly head and logits."""
    from transformers import Qwen3Config

    from tests.standins import small, write_model

    found = {}
    for name, layers in (("target", 4), ("draft", 1)):
        directory = place / name
        directory.mkdir()
        config = small(
            Qwen3Config,
            vocab_size=151_936,
            hidden_size=256,
            intermediate_size=768,
            num_hidden_layers=layers,
            num_attention_heads=4,
            num_key_value_heads=2,
            head_dim=64,
            tie_word_embeddings=True,
        )
        write_model(directory, config, seed=layers, shards=1)
        found[name] = str(directory)
    return found


def resident(kind: str) -> int:
    """Bytes, from the kernel's own account of this process."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{kind}:"):
            return int(line.split()[1]) * 1024
    raise OSError(f"no {kind} in /proc/self/status")


def measure(setting: dict[str, Any]) -> dict[str, float]:
    """Estimate and peak of one setting, in this process."""
    import msgspec

    import engine.evaluation.compare
    import engine.models.device_memory
    from engine.config.settings import Sampling, Settings
    from engine.pairs import load
    from engine.pairs import memory_check as room
    from engine.pairs.job import Workload
    from engine.pairs.registry import PairRequest
    from engine.records.schema import Failure
    from engine.runs.run import Run
    from engine.text.prompts import PromptEntry, encode_prompts, read_prompts

    reckoned: list[Any] = []
    original = room.needs

    def needs(*given: Any) -> Any:
        reckoned.append(original(*given))
        return reckoned[-1]

    room.needs = needs  # type: ignore[assignment]
    sampling = Sampling(**setting.get("sampling", {}))
    lanes = tuple(Settings(sampling=sampling, **lane) for lane in setting["lanes"])
    entries = read_prompts(limit=lanes[0].batch_size)
    if "pair" in setting:  # a model without a tokenizer
        entries = tuple(PromptEntry(ids=tuple(range(9, 9 + 40 + i))) for i in range(len(entries)))
    request = PairRequest(**setting.get("pair", {}))
    before = resident("VmRSS")
    pair = load.load_pair(
        request, device="cpu", dtype=setting["dtype"], workload=Workload(lanes, entries)
    )
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from here
    prompts = encode_prompts(entries, pair.tokenizer, None, pair.info.context)
    if len(lanes) == 1:
        records = Run(pair, lanes[0], prompts).records()
    else:
        records = engine.evaluation.compare.Compare(pair, lanes, prompts).records()
    for record in records:
        assert not isinstance(record, Failure), record
    (need,) = reckoned[0].values()
    return {**msgspec.to_builtins(need), "total": need.total, "peak": resident("VmHWM") - before}


def main() -> None:
    """Print the table."""
    table = Table("setting", "weights", "K/V", "logits", "work", "estimate", "peak", "off")
    with tempfile.TemporaryDirectory() as place:
        wide = wide_pair(Path(place))
        for name, setting in SETTINGS.items():
            asked = {**setting, **({"pair": wide} if setting.get("wide") else {})}
            command = [sys.executable, "-m", "tests.measure_memory", json.dumps(asked)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode:
                sys.exit(done.stderr)
            found = json.loads(done.stdout.splitlines()[-1])
            parts = [f"{found[part] / 1e6:.0f}" for part in ("weights", "kv", "logits", "work")]
            off = found["total"] / found["peak"] - 1
            table.add_row(
                name,
                *parts,
                f"{found['total'] / 1e6:.0f}",
                f"{found['peak'] / 1e6:.0f}",
                f"{100 * off:+.1f} %",
            )
    Console().print(table, "in MB")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        print(json.dumps(measure(json.loads(sys.argv[1]))))
    else:
        main()
