"""The command line that makes a run again means the same run."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from engine.pairs.registry import LOOKUP, all_pairs
from engine.records.schema import PairInfo, RunHeader
from tui.session.reproduce import command_line, prompt_words


def words_of(pair: PairInfo) -> str:
    return command_line(RunHeader(method="eqspec", pair=pair), [])


@pytest.mark.parametrize(
    ("pair", "words"),
    [
        (PairInfo(name="smollm2", target="SmolLM2-135M-Instruct"), "--model-pair smollm2"),
        (
            PairInfo(name="smollm2", target="SmolLM2-135M-Instruct", draft=LOOKUP),
            "--model-pair smollm2 --draft lookup",
        ),
        (
            PairInfo(
                name="smollm2", target="SmolLM2-135M-Instruct", draft="the target's first 6 layers"
            ),
            "--model-pair smollm2",
        ),
        (
            PairInfo(name="model", target="some org/model", draft="lookup"),
            "--target 'some org/model' --draft lookup",
        ),
        (
            PairInfo(name="qwen3", target="mine/qwen3", draft="mine/small"),
            "--target mine/qwen3 --draft mine/small",
        ),
        (
            PairInfo(name="qwen3", target=all_pairs()["qwen3"].target, draft="mine/small"),
            "--model-pair qwen3 --draft mine/small",
        ),
    ],
)
def test_a_pair_is_named_where_its_name_means_it(home: Path, pair: PairInfo, words: str) -> None:
    assert words_of(pair) == f"batchspec-tui run {words} --method eqspec"


def test_prompts_as_they_were_given() -> None:
    words = prompt_words(("it's", "-x $HOME"), Path("a b.jsonl"), 3, False)
    line = command_line(RunHeader(method="bsp", pair=PairInfo(name="toy")), words)
    assert shlex.split(line)[-9:] == [
        *("--prompt", "it's", "--prompt", "-x $HOME", "--prompts", "a b.jsonl"),
        *("--limit", "3", "--no-chat"),
    ]
    assert prompt_words((), None, None, None) == []


def test_flags_are_given_again() -> None:
    header = RunHeader(method="slotspec", settings={"cuda_graphs": True, "strict": True})
    assert command_line(header, []).endswith("--method slotspec --strict --cuda-graphs")


def test_run_tells_how_to_do_it_again_and_that_is_the_same_run(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    from tui.cli.main import _status

    given = "run --model-pair toy --batch-size 2 --max-new-tokens 6 --limit 2 --temperature 0.5"
    assert _status(given.split()) == 0
    first = capsys.readouterr().out
    again = first.splitlines()[-1]
    assert _status(shlex.split(again)[1:]) == 0
    second = capsys.readouterr().out
    assert second.splitlines()[-1] == again
    texts = [text[: text.index("method ")] for text in (first, second)]
    assert texts[0] == texts[1]


def test_prompt_lookup_is_named_where_it_is_not_as_the_pair_says() -> None:
    def words(pair: str, **settings: object) -> str:
        header = RunHeader(method="eqspec", pair=PairInfo(name=pair), settings=settings)
        return command_line(header, [])

    assert "own-text" not in words("smollm2", prompt_lookup=True)
    assert "--no-prompt-lookup" in words("smollm2", prompt_lookup=False)
    assert "--prompt-lookup" in words("toy", prompt_lookup=True)
    assert "own-text" not in words("toy", prompt_lookup=False)
    assert "own-text" not in words("smollm2"), "a record from before there was such a thing"
