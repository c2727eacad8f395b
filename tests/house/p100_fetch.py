"""Gets some files of a wheel on a package index, without the rest: p100_fetch.py WHEEL SHA256 FOLDER PREFIX ...

WHEEL is a file name. What it holds as nvidia/*/PREFIX... lands in FOLDER/PREFIX... A wheel is a zip file with its list
at the end, so HTTP range requests reach the headers in a wheel of 700 MB. Where the index states a SHA256, it must be
the given one, but the parts that are read are checked by the zip's CRC-32 only. A server that ignores ranges sends the
whole wheel, and then its SHA256 is computed.

Index and certificate are those of pip: PIP_INDEX_URL, PIP_CERT, pip's configuration. Exit status 77: no such wheel to
be had here.
"""

import hashlib
import html.parser
import io
import os
import pathlib
import ssl
import subprocess
import sys
import tempfile
import urllib.error
import urllib.parse
import urllib.request
import zipfile

kNotHere = 77
kTimeoutSeconds = 60
kBlock = 1 << 16


def pip_setting(name, default):
    value = os.environ.get("PIP_" + name.upper().replace("-", "_"))
    command = [sys.executable, "-m", "pip", "config", "get", f"global.{name}"]
    return value or subprocess.run(command, capture_output=True, text=True).stdout.strip() or default


class Index:
    def __init__(self):
        self.url = pip_setting("index-url", "https://pypi.org/simple").rstrip("/")
        self.context = ssl.create_default_context(cafile=pip_setting("cert", None))

    def open(self, url, **headers):
        request = urllib.request.Request(url, headers=headers)
        return urllib.request.urlopen(request, timeout=kTimeoutSeconds, context=self.context)

    def find(self, wheel, sha256):
        """The wheel's address."""
        page = f"{self.url}/{wheel.split('-')[0].replace('_', '-')}/"
        parser = html.parser.HTMLParser()
        links = []
        parser.handle_starttag = lambda tag, attributes: links.append(dict(attributes).get("href") or "")
        with self.open(page, Accept="text/html") as response:
            parser.feed(response.read().decode())
        for link in links:
            url, _, fragment = urllib.parse.urljoin(page, link).partition("#")
            if urllib.parse.unquote(url).endswith("/" + wheel):
                if fragment and fragment != "sha256=" + sha256:
                    sys.exit(f"p100_fetch.py: {page} has another {wheel}: {fragment}, expected sha256={sha256}")
                return url
        raise FileNotFoundError(f"{page} does not list it")


class RemoteFile(io.RawIOBase):
    """A file on a server that answers range requests, to be read and sought as if it were here."""

    def __init__(self, index, url, size):
        self.index, self.url, self.size, self.position, self.received = index, url, size, 0, 0

    def readable(self):
        return True

    def seekable(self):
        return True

    def seek(self, offset, whence=os.SEEK_SET):
        self.position = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self.position, os.SEEK_END: self.size}[whence]
        return self.position

    def tell(self):
        return self.position

    def readinto(self, buffer):
        end = min(self.position + len(buffer), self.size)
        if self.position >= end:
            return 0
        with self.index.open(self.url, Range=f"bytes={self.position}-{end - 1}") as response:
            if response.status != 206:
                raise OSError(f"{self.url}: no answer to a range request")
            data = response.read()
        buffer[: len(data)] = data
        self.position += len(data)
        self.received += len(data)
        return len(data)


def open_wheel(index, url, sha256):
    """The wheel as a file, and a function that tells how many bytes have come."""
    with index.open(url, Range="bytes=0-0") as response:
        if response.status == 206:
            remote = RemoteFile(index, url, int(response.headers["Content-Range"].rpartition("/")[2]))
            return io.BufferedReader(remote, kBlock), lambda: remote.received
        whole, digest = tempfile.TemporaryFile(), hashlib.sha256()
        while block := response.read(kBlock):
            whole.write(block)
            digest.update(block)
    if digest.hexdigest() != sha256:
        sys.exit(f"p100_fetch.py: {url} has the sha256 {digest.hexdigest()}, expected {sha256}")
    size = whole.tell()
    return whole, lambda: size


def extract(wheel, folder, prefixes):
    """zipfile checks sizes and CRCs while it reads."""
    count = 0
    with zipfile.ZipFile(wheel) as archive:
        for member in sorted(archive.infolist(), key=lambda member: member.header_offset):
            parts = pathlib.PurePosixPath(member.filename).parts
            path = "/".join(parts[2:])
            if parts[0] != "nvidia" or ".." in parts or member.is_dir() or not path.startswith(tuple(prefixes)):
                continue
            target = folder / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.read(member))
            if path.startswith("bin/"):
                target.chmod(0o755)
            count += 1
    return count


def main():
    wheel, sha256, folder, *prefixes = sys.argv[1:]
    try:
        index = Index()
        file, received = open_wheel(index, index.find(wheel, sha256), sha256)
        count = extract(file, pathlib.Path(folder), prefixes)
    except (OSError, zipfile.BadZipFile) as error:  # URLError and time-outs are OSErrors
        print(f"p100_fetch.py: {wheel}: {error}", file=sys.stderr)
        sys.exit(kNotHere if isinstance(error, OSError) else 1)
    if count == 0:
        sys.exit(f"p100_fetch.py: nothing in {wheel} begins with {' or '.join(prefixes)}")
    print(f"fetched {count} files of {wheel}: {received() / 1e6:.1f} MB received")


if __name__ == "__main__":
    main()
