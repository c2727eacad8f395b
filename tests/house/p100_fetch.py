"""Gets some files of a wheel on the package index, without the rest: p100_fetch.py WHEEL SHA256 FOLDER PREFIX ...

WHEEL is a file name. What it holds as nvidia/*/PREFIX... lands in FOLDER/PREFIX... The index must state that SHA256; the parts
that are read are checked by the zip's CRC-32 only. Needs remotezip, and an index that knows PEP 691 and answers range requests.
Index and certificate are those of pip: PIP_INDEX_URL, PIP_CERT, pip's configuration. Exit status 77: no such wheel to be had here.
"""

import os
import pathlib
import subprocess
import sys
import urllib.parse
import zipfile

import remotezip
import requests


def pip_setting(name, default):
    value = subprocess.run([sys.executable, "-m", "pip", "config", "get", f"global.{name}"], capture_output=True, text=True).stdout.strip()
    return os.environ.get("PIP_" + name.upper().replace("-", "_")) or value or default


def fetch(wheel, sha256, folder, *prefixes):
    session = requests.Session()
    session.verify = pip_setting("cert", True)
    index = pip_setting("index-url", "https://pypi.org/simple").rstrip("/")
    page = f"{index}/{wheel.split('-')[0].replace('_', '-')}/"
    listed = session.get(page, headers={"Accept": "application/vnd.pypi.simple.v1+json"}, timeout=60).json()["files"]
    urls = [urllib.parse.urljoin(page, file["url"]) for file in listed if file["filename"] == wheel and file["hashes"].get("sha256") == sha256]
    if not urls:
        sys.exit(f"p100_fetch.py: {index} lists no {wheel} of the sha256 {sha256}")
    count = 0
    with remotezip.RemoteZip(urls[0], session=session, timeout=60) as archive:
        for member in archive.infolist():
            parts = pathlib.PurePosixPath(member.filename).parts
            path = "/".join(parts[2:])
            if parts[0] != "nvidia" or ".." in parts or member.is_dir() or not path.startswith(prefixes):
                continue
            target = pathlib.Path(folder) / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))
            if path.startswith("bin/"):
                target.chmod(0o755)
            count += 1
    if count == 0:
        sys.exit(f"p100_fetch.py: nothing in {wheel} begins with {' or '.join(prefixes)}")
    print(f"fetched {count} files of {wheel}")


if __name__ == "__main__":
    try:
        fetch(*sys.argv[1:])
    except (OSError, ValueError, remotezip.RemoteZipError) as error:  # those of requests are OSErrors
        print(f"p100_fetch.py: {sys.argv[1]}: {error}", file=sys.stderr)
        sys.exit(77)
    except zipfile.BadZipFile as error:
        sys.exit(f"p100_fetch.py: {sys.argv[1]}: {error}")
