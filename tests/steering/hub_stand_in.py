"""A server on this machine that speaks the hub's HTTP formats: repositories, commits, large files, tokens, gates."""

import base64
import hashlib
import json
import re
import threading
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import huggingface_hub
import yaml

WRITE, READ = "hf_write", "hf_read"
LICENCES = ("apache-2.0", "mit", "cc-by-4.0", "other")
"""Some of those that the hub knows; it refuses all others."""


@dataclass
class Repository:
    private: bool = False
    gated: bool = False
    branches: dict = field(default_factory=lambda: {"main": {}})
    """Files by name, of the last commit of each branch."""

    def commit(self, revision):
        """Return the hash of what a branch holds, as a commit would have one."""
        content = json.dumps({name: hashlib.sha1(data).hexdigest() for name, data in self.branches[revision].items()})
        return hashlib.sha1(content.encode()).hexdigest()

    def files(self, revision):
        """Return the files of a branch or of the commit that a branch points to; None if there is no such revision."""
        return next((self.branches[b] for b in self.branches if revision in (b, self.commit(b))), None)


@dataclass
class Hub:
    repositories: dict = field(default_factory=dict)
    large: dict = field(default_factory=dict)
    asked: list = field(default_factory=list)
    """The method and path of each request."""


class RefusedError(Exception):
    def __init__(self, status, code=None, message="", **facts):
        super().__init__(message)
        self.status, self.code, self.facts = status, code, facts


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.0"  # a connection ends with its answer, so that a stopped server is gone

    def do_GET(self):
        self.answer_with(
            {
                r"/api/models/([^/]+/[^/]+)(?:/revision/([^/]+))?": self.info,
                r"/api/models/([^/]+/[^/]+)/tree/([^/]+)": self.tree,
                r"/([^/]+/[^/]+)/resolve/([^/]+)/(.+)": self.resolve,
            }
        )

    def do_HEAD(self):
        self.do_GET()

    def do_POST(self):
        self.answer_with(
            {
                r"/api/repos/create": self.create,
                r"/api/validate-yaml": self.validate,
                r"/api/models/([^/]+/[^/]+)/branch/([^/]+)": self.branch,
                r"/api/models/([^/]+/[^/]+)/preupload/([^/]+)": self.preupload,
                r"/api/models/([^/]+/[^/]+)/commit/([^/]+)": self.commit,
                r"/([^/]+/[^/]+)\.git/info/lfs/objects/batch": self.batch,
            }
        )

    def do_PUT(self):
        self.answer_with({r"/large/(\w+)": self.store})

    def answer_with(self, routes):
        self.body = self.read_body()
        path = self.path.partition("?")[0]
        self.hub.asked.append((self.command, path))
        try:
            for pattern, route in routes.items():
                if match := re.fullmatch(pattern, path):
                    self.send(200, *route(*match.groups()))
                    return
            raise RefusedError(404, "EntryNotFound")
        except RefusedError as refused:
            headers = {"X-Error-Message": str(refused)} | ({"X-Error-Code": refused.code} if refused.code else {})
            body = {"error": str(refused), "errors": [{"message": str(refused)}], **refused.facts}
            self.send(refused.status, json.dumps(body).encode(), headers)

    def read_body(self):
        if self.headers.get("Transfer-Encoding") != "chunked":
            return self.rfile.read(int(self.headers.get("Content-Length") or 0))
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def send(self, status, body, headers=None):
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *words):
        pass

    @property
    def hub(self):
        return self.server.hub

    @property
    def token(self):
        return (self.headers.get("Authorization") or "").removeprefix("Bearer ")

    def found(self, name):
        repository = self.hub.repositories.get(name)
        if repository is None or (repository.private and self.token not in (READ, WRITE)):
            raise RefusedError(401, "RepoNotFound", "Repository not found")
        return repository

    def files(self, name, revision):
        files = self.found(name).files(revision)
        if files is None:
            raise RefusedError(404, "RevisionNotFound", "Invalid rev id")
        return files

    def require_write(self):
        if self.token != WRITE:
            raise RefusedError(403 if self.token else 401, None, "You don't have the rights to write")

    def info(self, name, revision):
        revision = revision or "main"
        files = self.files(name, revision)
        sha = revision if revision not in self.found(name).branches else self.found(name).commit(revision)
        return as_json({"id": name, "sha": sha, "siblings": [{"rfilename": file} for file in files]})

    def tree(self, name, revision):
        rows = []
        for file, data in self.files(name, revision).items():
            row = {"type": "file", "path": file, "size": len(data), "oid": hashlib.sha1(data).hexdigest()}
            large = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data), "pointerSize": 130}
            rows.append(row | ({"lfs": large} if file.endswith(".safetensors") else {}))
        return as_json(rows)

    def resolve(self, name, revision, file):
        repository, files = self.found(name), self.files(name, revision)
        if repository.gated and self.token != WRITE:
            raise RefusedError(403, "GatedRepo", "Access to model is restricted")
        if file not in files:
            raise RefusedError(404, "EntryNotFound", "Entry not found")
        commit = revision if revision not in repository.branches else repository.commit(revision)
        etag = hashlib.sha256(files[file]).hexdigest()
        return files[file], {"ETag": f'"{etag}"', "X-Repo-Commit": commit}

    def create(self):
        self.require_write()
        asked = json.loads(self.body)
        name = f"{asked['organization']}/{asked['name']}"
        address = {"url": f"{self.address}/{name}"}
        if name in self.hub.repositories:
            raise RefusedError(409, None, "You already created this model repo", **address)
        self.hub.repositories[name] = Repository(private=asked.get("visibility") == "private" or asked.get("private"))
        return as_json(address)

    def validate(self):
        content = json.loads(self.body)["content"]
        block = re.match(r"---\n(.*?)\n---\n", content, flags=re.DOTALL)
        metadata = yaml.safe_load(block[1]) if block else {}
        if metadata.get("license", "mit") not in LICENCES:
            raise RefusedError(400, None, f'"license" must be one of {LICENCES}')
        return as_json({"errors": [], "warnings": []})

    def branch(self, name, branch):
        self.require_write()
        repository = self.found(name)
        if branch in repository.branches:
            raise RefusedError(409, None, "Reference already exists")
        repository.branches[branch] = dict(repository.branches["main"])
        return as_json({})

    def preupload(self, name, revision):
        self.require_write()
        self.files(name, revision)
        modes = {True: "lfs", False: "regular"}
        rows = json.loads(self.body)["files"]
        return as_json(
            {
                "files": [
                    {
                        "path": row["path"],
                        "uploadMode": modes[row["path"].endswith(".safetensors")],
                        "shouldIgnore": False,
                    }
                    for row in rows
                ]
            }
        )

    def batch(self, name):
        self.require_write()
        objects = [
            {**row, "actions": {"upload": {"href": f"{self.address}/large/{row['oid']}"}}}
            for row in json.loads(self.body)["objects"]
        ]
        return as_json({"transfer": "basic", "objects": objects})

    def store(self, oid):
        assert hashlib.sha256(self.body).hexdigest() == oid
        self.hub.large[oid] = self.body
        return as_json({})

    def commit(self, name, revision):
        self.require_write()
        files = self.files(name, revision)
        for line in map(json.loads, self.body.splitlines()):
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.hub.large[value["oid"]]
        oid = self.found(name).commit(revision)
        return as_json({"commitUrl": f"{self.address}/{name}/commit/{oid}", "commitOid": oid})

    @property
    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"


def as_json(value):
    return json.dumps(value).encode(), {"Content-Type": "application/json"}


@contextmanager
def running_hub():
    """Yield the address of a stand-in, and what it holds."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.hub = Hub()
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server.hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def use(monkeypatch, address, cache):
    """Let huggingface_hub in this process talk to ``address``, as HF_ENDPOINT does at its start."""
    constants = huggingface_hub.constants
    template = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
    settings = {"ENDPOINT": address, "HUGGINGFACE_CO_URL_TEMPLATE": template, "HF_HUB_OFFLINE": False}
    settings |= {"HF_HUB_DISABLE_XET": True}  # large files travel by the older of the two protocols
    for name, value in (settings | {"HF_HUB_CACHE": str(cache), "HF_TOKEN_PATH": str(cache / "token")}).items():
        monkeypatch.setattr(constants, name, value)
    monkeypatch.setenv("HF_HUB_DISABLE_PROGRESS_BARS", "1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
