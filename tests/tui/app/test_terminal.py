"""The app in a terminal of its own: start, signals, stray output, the result file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tui.app.terminal import quiet_terminal

pty = pytest.importorskip("pty")
ALT_SCREEN_LEFT = b"\x1b[?1049l"
MOUSE_OFF = b"\x1b[?1000l"


class Terminal:
    """A pseudo-terminal with the app in it."""

    def __init__(self, home: Path, *arguments: str) -> None:
        self.pid, self.fd = pty.fork()
        if self.pid == 0:
            os.environ.update(TERM="xterm-256color", BATCHSPEC_HOME=str(home), LINES="35")
            os.environ["COLUMNS"] = "120"
            code = "from tui.cli.main import main; main()"
            os.execv(sys.executable, [sys.executable, "-c", code, *arguments])
        self.output = b""

    def read(self, seconds: float) -> bytes:
        import select

        new = b""
        if select.select([self.fd], [], [], seconds)[0]:
            try:
                new = os.read(self.fd, 65536)
            except OSError:
                return b""
        self.output += new
        return new

    def until(self, text: bytes, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while text not in self.output:
            assert time.monotonic() < end, self.output[-2000:]
            self.read(0.1)

    def press(self, keys: bytes) -> None:
        os.write(self.fd, keys)

    def wait(self, seconds: float = 20.0) -> int:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.read(0.05)
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.pid = 0
                while self.read(0.05):
                    pass
                return os.waitstatus_to_exitcode(status)
        raise AssertionError("the app did not end")

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


def test_a_run_is_quit_and_its_result_written(home: Path, tmp_path: Path) -> None:
    result = tmp_path / "result.json"
    terminal = Terminal(
        home, "--model-pair", "toy", "--max-new-tokens", "400", "--json", str(result)
    )
    try:
        terminal.until(b"microscope", 20.0)
        terminal.until(b"raggedness")
        terminal.until(b"accepted")
        terminal.press(b"q")
        assert terminal.wait() == 0
        assert ALT_SCREEN_LEFT in terminal.output
        assert MOUSE_OFF in terminal.output
    finally:
        terminal.close()
    written = json.loads(result.read_bytes())
    assert written["schema"] == "batchspec/run/1"
    assert written["method"] == "eqspec"
    assert len(written["rows"]) == 32


def test_a_signal_gives_the_terminal_back(home: Path) -> None:
    terminal = Terminal(home, "--model-pair", "toy", "--paused")
    try:
        terminal.until(b"microscope", 20.0)
        os.kill(terminal.pid, signal.SIGTERM)
        assert terminal.wait() == 143
        assert ALT_SCREEN_LEFT in terminal.output
        assert MOUSE_OFF in terminal.output
    finally:
        terminal.close()


def test_a_mistake_in_the_request_is_one_line_and_status_2(home: Path) -> None:
    terminal = Terminal(home, "--target", "/nowhere/at/all", "--draft", "/nowhere/else")
    try:
        terminal.until(b"the engine stopped")
        terminal.press(b"q")
        assert terminal.wait() == 2
        last = terminal.output.split(ALT_SCREEN_LEFT)[-1]
        assert b"batchspec-tui: /nowhere/at/all: no such model directory" in last
        assert b"Traceback" not in last
    finally:
        terminal.close()


def test_the_first_frame_needs_no_torch() -> None:
    code = (
        "import sys, time; begin = time.perf_counter(); import tui.app.app; "
        "print(time.perf_counter() - begin, sorted({'torch', 'transformers'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    seconds, modules = done.stdout.split(" ", 1)
    assert modules.strip() == "[]"
    assert float(seconds) < 5.0


def test_stray_output_goes_to_the_log(tmp_path: Path) -> None:
    log = tmp_path / "logs" / "app.log"
    before = sys.__stderr__
    with quiet_terminal(log):
        os.write(2, b"native noise\n")
        assert sys.__stderr__ is not before
        assert sys.getswitchinterval() == pytest.approx(0.001)
    assert b"native noise" in log.read_bytes()
    assert sys.__stderr__ is before
