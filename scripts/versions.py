"""Run the engine's tests under the oldest and the newest transformers that pyproject.toml allows.

    python scripts/versions.py                  both
    python scripts/versions.py 5.0.0 5.10.4     others
    python scripts/versions.py --keep DIR       leave the environments there, and use them again

Each version gets a virtual environment of its own, with the newest of everything else that
agrees with it. That takes minutes and a few gigabytes, so it is no part of the ordinary tests.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = "transformers"


def supported() -> tuple[str, str]:
    """The oldest version that pyproject.toml allows, as a pin, and the whole range."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (wanted,) = [one for one in project["dependencies"] if re.match(rf"{PACKAGE}\b", one)]
    oldest = re.search(r">=\s*([\d.]+)", wanted)
    assert oldest is not None, f"no lower bound in '{wanted}'"
    number = oldest[1] + ".0" * (2 - oldest[1].count("."))
    return f"{PACKAGE}=={number}", wanted


def engine_tests() -> list[str]:
    """All but those that drive a screen."""
    screen = re.compile(r"^(from|import) (tests\.tui_app|textual)\b", re.MULTILINE)
    files = (one.relative_to(ROOT) for one in sorted((ROOT / "tests").rglob("test_*.py")))
    return [
        str(one)
        for one in files
        if one.parts[1] != "tui" and not screen.search((ROOT / one).read_text("utf-8"))
    ]


def environment(place: Path, requirement: str) -> Path:
    """A virtual environment with the project and this requirement; its Python."""
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    if not python.exists():
        venv.create(place, with_pip=True)
    install = [str(python), "-m", "pip", "install", "--quiet", f"{ROOT}[dev]", requirement]
    subprocess.run(install, check=True, cwd=place)
    return python


def version_in(python: Path) -> str:
    code = f"from importlib.metadata import version; print(version('{PACKAGE}'))"
    return subprocess.run(
        [str(python), "-c", code], check=True, capture_output=True, text=True
    ).stdout.strip()


def tested(python: Path, tests: list[str]) -> tuple[bool, str]:
    """Whether they pass, and pytest's last line."""
    options = ["-q", "-n", "auto", "-p", "no:cacheprovider", "--timeout=600"]
    command = [str(python), "-m", "pytest", *options, *tests]
    environ = {**os.environ, "PYTHONPATH": str(ROOT)}
    last = ""
    with subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            sys.stdout.write(line)
            sys.stdout.flush()
            last = line.strip() or last
    return process.returncode == 0, last


def main() -> int:
    description, _, usage = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=description, epilog=usage, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("versions", nargs="*", metavar="VERSION")
    parser.add_argument("--keep", type=Path, metavar="DIR", help="where environments are kept")
    parser.add_argument("--tests", nargs="+", metavar="FILE", help="only these")
    asked = parser.parse_args()
    requirements = [f"{PACKAGE}=={version}" for version in asked.versions] or list(supported())
    results = []
    with tempfile.TemporaryDirectory() as scratch:
        for number, requirement in enumerate(requirements):
            name = re.sub(r"[^\w.]+", "-", requirement)
            place = (asked.keep or Path(scratch)).resolve() / f"{number}-{name}"
            print(f"\n== {requirement}: making the environment", flush=True)
            python = environment(place, requirement)
            version = version_in(python)
            print(f"== {PACKAGE} {version}: running the tests", flush=True)
            began = time.monotonic()
            good, last = tested(python, asked.tests or engine_tests())
            results.append((version, good, last, time.monotonic() - began))
    print()
    for version, good, last, seconds in results:
        print(
            f"{PACKAGE} {version:<10} {'passed' if good else 'FAILED':<8}{seconds:5.0f} s  {last}"
        )
    return 0 if all(good for _, good, _, _ in results) else 1


if __name__ == "__main__":
    sys.exit(main())
