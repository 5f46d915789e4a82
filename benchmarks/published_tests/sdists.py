"""Take a source distribution from the package index that pip is configured for, and check its digest."""

import hashlib
import html
import re
import subprocess
import sys
import tarfile
from pathlib import Path
from urllib.parse import urljoin, urlsplit
from urllib.request import urlopen

from benchmarks.published_tests.peer import Peer

__all__ = ["sdist_of", "unpack"]


def sdist_of(peer: Peer, cache: Path) -> Path:
    """Return the peer's sdist in ``cache``, which is downloaded if it is not there."""
    path = cache / peer.sdist
    if not path.exists():
        content = _read(_address(peer))
        _require(peer, content)
        cache.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    _require(peer, path.read_bytes())
    return path


def unpack(sdist: Path, folder: Path) -> Path:
    """Unpack ``sdist`` into ``folder`` and return the folder that it holds."""
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    return folder / sdist.name.removesuffix(".tar.gz")


def _require(peer: Peer, content: bytes) -> None:
    found = hashlib.sha256(content).hexdigest()
    if found != peer.sha256:
        sys.exit(f"{peer.sdist} has the SHA-256 {found}; {peer.sha256} is pinned. Delete the file and run again.")


def _address(peer: Peer) -> str:
    for index in _indexes():
        page = f"{index.rstrip('/')}/{peer.name.lower()}/"
        try:
            links = re.findall(r'href="([^"]+)"', _read(page).decode())
        except OSError:
            continue
        for link in links:
            address = urljoin(page, html.unescape(link))
            if urlsplit(address).path.endswith(f"/{peer.sdist}"):
                return address
    sys.exit(f"No index of pip's configuration offers {peer.sdist}. Put the file into the folder of --cache.")


def _indexes() -> list[str]:
    """Return the indexes that pip looks into: those of its configuration, and its own default where none is named."""
    configured = re.findall(r"(?m)^\S*\.(extra-)?index-url='(.*)'$", _pip("config", "list"))
    found = [index for _, values in sorted(configured) for index in re.split(r"\\n|\s+", values) if index]
    if not any(extra == "" for extra, _ in configured):
        found += re.findall(r"Package Index\s+\(default\s+([^\s)]+)\)", _pip("download", "--help"))
    return found


def _pip(*arguments: str) -> str:
    return subprocess.run([sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=True).stdout


def _read(address: str) -> bytes:
    with urlopen(address, timeout=60) as answer:
        content: bytes = answer.read()
    return content
