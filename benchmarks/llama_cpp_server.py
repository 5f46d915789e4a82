"""The real llama.cpp: Debian's packages, unpacked into a folder of their own, and its server on loopback.

Nothing is installed on the machine. ``apt-get`` runs with a configuration of its own in the given folder, with the
mirror of the machine's configuration and the newer suite that has llama.cpp; ``dpkg-deb`` unpacks the packages there,
and their own loader runs them. About 20 MB; Debian on x86-64 only.
"""

import json
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

__all__ = ["LlamaCpp"]

SUITE, PACKAGE = "forky", "llama.cpp-tools"
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
SECONDS = 120.0
"""Time within which the server must be ready."""


class LlamaCpp:
    """The programs of llama.cpp in a folder.

    Parameters
    ----------
    folder : path
        Filled on first use.
    """

    def __init__(self, folder: Path) -> None:
        self.root = folder / "root"
        if not (self.root / "usr/bin/llama-server").exists():
            _unpack(folder, self.root)

    def command(self, program: str, *words: object) -> list[str]:
        """Return the command that runs ``program`` with the libraries of its own packages."""
        libraries = self.root / "usr/lib/x86_64-linux-gnu"
        loader = [self.root / "usr/lib64/ld-linux-x86-64.so.2", "--library-path", f"{libraries}:{libraries}/llama"]
        return [str(word) for word in (*loader, self.root / "usr/bin" / program, *words)]

    @property
    def environment(self) -> dict[str, str]:
        """The variable that names the library for this processor."""
        kind = "haswell" if "avx2" in Path("/proc/cpuinfo").read_text() else "x64"
        backend = self.root / f"usr/lib/x86_64-linux-gnu/ggml/backends0/libggml-cpu-{kind}.so"
        return {"GGML_BACKEND_PATH": str(backend)}

    def version(self) -> str:
        """Return the first line of ``--version``."""
        done = subprocess.run(self.command("llama-server", "--version"), capture_output=True, text=True, check=True)
        return (done.stderr + done.stdout).strip().splitlines()[0]

    def dequantised(self, model: Path, out: Path) -> Path:
        """Return ``out``, where the weights of ``model`` are in float32."""
        if not out.exists():
            words = ("--allow-requantize", model, out.with_suffix(".part"), "F32", 1)
            subprocess.run(
                self.command("llama-quantize", *words), env=self.environment, check=True, capture_output=True
            )
            out.with_suffix(".part").rename(out)
        return out

    @contextmanager
    def serving(self, model: Path, *options: object) -> Iterator["Server"]:
        """Yield a server of ``model`` on a free port of loopback, one thread, and stop it afterwards."""
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        words = ("-m", model, "--host", "127.0.0.1", "--port", port, "-t", 1, "-np", 1, "-c", 512, "--no-webui")
        process = subprocess.Popen(
            self.command("llama-server", *words, *options),
            env=self.environment,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield Server(f"http://127.0.0.1:{port}", process)
        finally:
            process.terminate()
            process.wait()


class Server:
    """A running server; see `LlamaCpp.serving`."""

    def __init__(self, address: str, process: subprocess.Popen[bytes]) -> None:
        self.address = address
        until = time.monotonic() + SECONDS
        while not self._ready():
            if process.poll() is not None or time.monotonic() > until:
                raise RuntimeError(f"llama-server did not start (exit code {process.poll()}).")
            time.sleep(0.2)

    def log_probabilities(self, tokens: Sequence[int], vocabulary: int) -> NDArray[np.float64]:
        """Return the log-probabilities (vocabulary,) of the token after ``tokens``."""
        asked = {"prompt": list(tokens), "n_predict": 1, "n_probs": vocabulary, "temperature": 0, "cache_prompt": False}
        request = urllib.request.Request(f"{self.address}/completion", json.dumps(asked).encode())
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:
            found = json.load(answer)["completion_probabilities"][0]["top_logprobs"]
        values = np.full(vocabulary, np.nan)
        values[[one["id"] for one in found]] = [one["logprob"] for one in found]
        return values

    def _ready(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.address}/health", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False


def _unpack(folder: Path, root: Path) -> None:
    for name in ("state/lists/partial", "cache/archives/partial"):
        (folder / name).mkdir(parents=True, exist_ok=True)
    (folder / "status").touch()
    targets = ("indextargets", "--format", "$(REPO_URI)", "Created-By: Packages", "Origin: Debian")
    mirror = subprocess.run(("apt-get", *targets), capture_output=True, text=True, check=True).stdout.split()[0]
    (folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror} {SUITE} main\n")
    settings = {
        "Dir::Etc::sourcelist": folder / "sources.list",
        "Dir::Etc::sourceparts": "/dev/null",
        "Dir::State": folder / "state",
        "Dir::State::status": folder / "status",
        "Dir::Cache": folder / "cache",
        "Acquire::Languages": "none",
        "APT::Install-Recommends": "false",
        "APT::Sandbox::User": "root",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in settings.items())]
    subprocess.run([*apt, "update"], check=True)
    subprocess.run([*apt, "install", "--yes", "--download-only", PACKAGE], check=True)
    for package in sorted((folder / "cache/archives").glob("*.deb")):
        subprocess.run(("dpkg-deb", "-x", package, root), check=True)
