"""A stand-in for the Hub on the loopback interface, for the real huggingface_hub client to speak to.

It keeps repositories in memory and knows what publishing and loading a model need: who is asking, create repo,
branches, pull requests, preupload, LFS batch and upload, commit, tree, resolve. A commit is checked as a whole before
it becomes the head of its branch. `HubServer.fail` makes the next requests of a route fail.
"""

import base64
import hashlib
import json
import re
import threading
from collections import Counter
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit


TOKEN = "hf_stand_in_for_a_token_that_may_write"
READ_TOKEN = "hf_stand_in_for_a_token_that_may_read"
OWNER = "owner"
LFS_SUFFIXES = (".safetensors", ".bin", ".pt", ".onnx", ".png")  # as in the Hub's own .gitattributes
LFS_ABOVE = 10_000_000  # bytes
DROP = "drop"  # close the connection before the request is carried out; of an upload, after half of it was read
LOSE = "lose"  # carry the request out, then close the connection without an answer
GIT_ATTRIBUTES = b"*.safetensors filter=lfs diff=lfs merge=lfs -text\n"


class Blob(NamedTuple):
    content: bytes
    lfs: bool

    @property
    def sha256(self) -> str:
        return hashlib.sha256(self.content).hexdigest()

    @property
    def oid(self) -> str:
        """What git would call it; for an LFS file, the pointer that git holds."""
        data = self.content
        if self.lfs:
            pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{self.sha256}\nsize {len(data)}\n"
            data = pointer.encode()
        return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()

    @property
    def etag(self) -> str:
        return self.sha256 if self.lfs else self.oid


class Commit(NamedTuple):
    oid: str
    parent: str | None
    title: str
    files: dict[str, Blob]


@dataclass
class Repo:
    private: bool
    commits: dict[str, Commit] = field(default_factory=dict)
    refs: dict[str, str] = field(default_factory=dict)  # branch name or refs/pr/N: commit
    pull_requests: list[str] = field(default_factory=list)  # their titles

    def commit(self, ref: str, title: str, files: dict[str, Blob], parent: str | None) -> Commit:
        """Make a commit the head of `ref`."""
        oid = hashlib.sha1(f"{ref} {title} {parent} {len(self.commits)}".encode()).hexdigest()
        self.commits[oid] = Commit(oid, parent, title, dict(files))
        self.refs[ref] = oid
        return self.commits[oid]

    def find(self, revision: str) -> Commit | None:
        return self.commits.get(self.refs.get(revision, revision))

    @property
    def head(self) -> Commit:
        return self.commits[self.refs["main"]]

    def contents(self, revision: str = "main") -> dict[str, bytes]:
        """The files of a revision, without the `.gitattributes` that the Hub puts there."""
        files = self.commits[self.refs.get(revision, revision)].files
        return {path: blob.content for path, blob in files.items() if path != ".gitattributes"}


class RefusedError(Exception):
    """An answer other than 200."""

    def __init__(self, status: int, message: str, code: str | None = None, headers: dict | None = None, **body: str):
        super().__init__(message)
        self.status, self.body = status, {"error": message} | body
        self.headers = (headers or {}) | {"X-Error-Message": message} | ({"X-Error-Code": code} if code else {})


class Answer(NamedTuple):
    body: bytes = b""
    headers: dict[str, str] = {}
    status: int = 200


def as_json(value, status: int = 200) -> Answer:
    return Answer(json.dumps(value).encode(), {"Content-Type": "application/json"}, status)


class HubServer:
    """The stand-in, serving while the `with` block lasts.

    Attributes:
        url: What HF_ENDPOINT must be.
        repos: Repositories by "owner/name", Spaces by "spaces/owner/name".
        lfs: Uploaded large files by sha256, in a commit or not.
        requests: How often each route was asked, faults included.
        tokens: The access tokens that hold: (user name, may write).
    """

    def __init__(self):
        self.repos: dict[str, Repo] = {}
        self.lfs: dict[str, bytes] = {}
        self.requests: Counter[str] = Counter()
        self.tokens = {TOKEN: (OWNER, True), READ_TOKEN: (OWNER, False)}
        self.lock = threading.RLock()
        self._faults: dict[str, list[int | str]] = {}
        self._before: dict[str, list] = {}
        handler = type("Handler", (_Handler,), {"hub": self})
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def __enter__(self):
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        return self

    def __exit__(self, *exception):
        self._server.shutdown()
        self._server.server_close()

    def fail(self, route: str, how: int | str, times: int = 1):
        """Make the next requests of a route fail.

        Args:
            route: A name of `ROUTES`.
            how: A status such as 503, `DROP` or `LOSE`.
        """
        assert route in {name for name, *_ in ROUTES}, route
        self._faults.setdefault(route, []).extend([how] * times)

    def before(self, route: str, action):
        """Do something, once, just before a route is next asked: someone else's commit, say."""
        self._before.setdefault(route, []).append(action)

    def next_fault(self, route: str) -> int | str | None:
        with self.lock:
            faults = self._faults.get(route)
            return faults.pop(0) if faults else None

    def run_before(self, route: str):
        while self._before.get(route):
            self._before[route].pop(0)()

    def make_repo(self, repo_id: str, files: dict[str, bytes] | None = None, private: bool = False) -> Repo:
        """A repository as the Hub makes it, holding `files` as well if given."""
        repo = self.repos[repo_id] = Repo(private)
        repo.commit("main", "initial commit", {".gitattributes": Blob(GIT_ATTRIBUTES, False)}, None)
        if repo_id.startswith("spaces/"):  # the Hub puts one there, for the page to say what it is
            readme = Blob(b"---\nsdk: gradio\n---\n", False)
            repo.commit("main", "initial commit", repo.head.files | {"README.md": readme}, repo.head.oid)
        if files:
            blobs = {path: Blob(content, path.endswith(LFS_SUFFIXES)) for path, content in files.items()}
            repo.commit("main", "before", repo.head.files | blobs, repo.head.oid)
        return repo


class _Handler(BaseHTTPRequestHandler):
    hub: HubServer
    protocol_version = "HTTP/1.1"
    wbufsize = -1  # headers and body in one packet: the second would wait 40 ms for the first to be acknowledged

    def log_message(self, *args):
        pass

    def _handle(self):
        url = urlsplit(self.path)
        path = url.path.replace("/api/spaces/", "/api/models/spaces/", 1)  # the same routes, in that name space
        for name, method, pattern in ROUTES:
            match = re.fullmatch(pattern, path)
            if match and self.command in method:
                self._carry_out(name, [unquote(part or "") for part in match.groups()], parse_qs(url.query))
                return
        self._send(as_json({"error": f"no route for {self.command} {self.path}"}, 404))

    do_GET = do_HEAD = do_POST = do_PUT = _handle  # noqa: N815 - names that http.server looks for

    def _carry_out(self, name: str, parts: list[str], query: dict[str, list[str]]):
        self.hub.requests[name] += 1
        fault = self.hub.next_fault(name)
        length = int(self.headers.get("Content-Length") or 0)
        if fault == DROP:
            self.rfile.read(length // 2)
            self._drop()
            return
        body = self.rfile.read(length)
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = self._read_chunks()
        if isinstance(fault, int):
            self._send(as_json({"error": f"fault {fault}"}, fault))
            return
        self.hub.run_before(name)
        try:
            with self.hub.lock:
                answer = getattr(_Routes(self.hub, self.headers), name)(*parts, body=body, query=query)
        except RefusedError as refused:
            said = as_json(refused.body, refused.status)
            answer = said._replace(headers=said.headers | refused.headers)
        if fault == LOSE:
            self._drop()
        else:
            self._send(answer)

    def _read_chunks(self) -> bytes:
        body = b""
        while size := int(self.rfile.readline(), 16):
            body += self.rfile.read(size)
            self.rfile.readline()
        self.rfile.readline()
        return body

    def _drop(self):
        self.close_connection = True
        self.connection.close()

    def _send(self, answer: Answer):
        self.send_response(answer.status)
        for key, value in {"Content-Length": str(len(answer.body)), **answer.headers}.items():
            self.send_header(key, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)


ID = "((?:spaces/)?[^/]+/[^/]+)"  # a Space has its own name space: spaces/owner/name
# name of the method of `_Routes` that answers, HTTP methods, path
ROUTES = [
    ("whoami", ("GET",), "/api/whoami-v2"),
    ("create_repo", ("POST",), "/api/repos/create"),
    ("validate_yaml", ("POST",), "/api/validate-yaml"),
    ("branch", ("POST",), f"/api/models/{ID}/branch/(.+)"),
    ("discussions", ("GET",), f"/api/models/{ID}/discussions"),
    ("tree", ("GET",), f"/api/models/{ID}/tree/([^/]+)(?:/(.+))?"),
    ("preupload", ("POST",), f"/api/models/{ID}/preupload/(.+)"),
    ("commit", ("POST",), f"/api/models/{ID}/commit/(.+)"),
    ("info", ("GET",), f"/api/models/{ID}(?:/revision/(.+))?"),
    ("lfs_batch", ("POST",), rf"/{ID}\.git/info/lfs/objects/batch"),
    ("lfs_upload", ("PUT",), "/lfs/([0-9a-f]{64})"),
    ("resolve", ("GET", "HEAD"), f"/{ID}/resolve/([^/]+)/(.+)"),
]


def owner_of(repo_id: str) -> str:
    return repo_id.removeprefix("spaces/").partition("/")[0]


class _Routes:
    """What each route answers. Called under the lock of the server, so that a request is all or nothing."""

    def __init__(self, hub: HubServer, headers):
        self.hub = hub
        self.token = headers.get("Authorization", "").removeprefix("Bearer ") or None

    def user(self) -> tuple[str, bool]:
        if self.token is None:
            raise RefusedError(401, "Invalid username or password.")
        if self.token not in self.hub.tokens:
            raise RefusedError(401, "Invalid credentials in Authorization header")
        return self.hub.tokens[self.token]

    def may_write(self, repo_id: str):
        owner = owner_of(repo_id)
        name, writes = self.user()
        if not writes or name != owner:
            raise RefusedError(403, f'You don\'t have the rights to create a model under the namespace "{owner}"')

    def repo(self, repo_id: str) -> Repo:
        if self.token is not None:
            self.user()
        repo = self.hub.repos.get(repo_id)
        seen = repo and (not repo.private or (self.token and self.user()[0] == owner_of(repo_id)))
        if not seen:
            raise RefusedError(404 if self.token else 401, "Repository not found", "RepoNotFound")
        return repo

    def revision(self, repo_id: str, revision: str) -> Commit:
        found = self.repo(repo_id).find(revision or "main")
        if found is None:
            raise RefusedError(404, f"Invalid rev id: {revision}", "RevisionNotFound")
        return found

    def whoami(self, *, body, query) -> Answer:
        return as_json({"type": "user", "name": self.user()[0], "orgs": []})

    def create_repo(self, *, body, query) -> Answer:
        asked = json.loads(body)
        owner = asked.get("organization") or self.user()[0]
        self.may_write(owner)
        is_space = asked.get("type") == "space"
        if is_space and asked.get("sdk") not in ("gradio", "docker", "static"):
            raise RefusedError(400, "A Space needs an sdk")
        repo_id = f"{'spaces/' * is_space}{owner}/{asked['name']}"
        if repo_id in self.hub.repos:
            raise RefusedError(409, "You already created this model repo", url=f"{self.hub.url}/{repo_id}")
        self.hub.make_repo(repo_id, private=asked.get("visibility") == "private")
        return as_json({"url": f"{self.hub.url}/{repo_id}"})

    def validate_yaml(self, *, body, query) -> Answer:
        return as_json({"errors": [], "warnings": []})

    def branch(self, repo_id: str, branch: str, *, body, query) -> Answer:
        self.may_write(repo_id)
        start = self.revision(repo_id, json.loads(body).get("startingPoint") or "main")
        repo = self.repo(repo_id)
        if branch in repo.refs:
            raise RefusedError(409, "Reference already exists")
        repo.refs[branch] = start.oid
        return as_json({})

    def discussions(self, repo_id: str, *, body, query) -> Answer:
        found = [
            {
                "num": number,
                "title": title,
                "author": {"name": OWNER},
                "createdAt": "2026-01-01T00:00:00.000Z",
                "status": "open",
                "repo": {"name": repo_id, "type": "model"},
                "isPullRequest": True,
            }
            for number, title in enumerate(self.repo(repo_id).pull_requests, 1)
        ]
        return as_json({"discussions": found[::-1], "count": len(found), "start": 0})

    def info(self, repo_id: str, revision: str, *, body, query) -> Answer:
        commit = self.revision(repo_id, revision)
        siblings = [{"rfilename": path} for path in commit.files]
        private = self.repo(repo_id).private
        return as_json({"id": repo_id, "sha": commit.oid, "private": private, "tags": [], "siblings": siblings})

    def tree(self, repo_id: str, revision: str, folder: str, *, body, query) -> Answer:
        files = self.revision(repo_id, revision).files
        if folder:
            files = {path: blob for path, blob in files.items() if path.startswith(folder + "/")}
            if not files:
                raise RefusedError(404, f"{folder} does not exist", "EntryNotFound")
        return as_json([self._entry(path, blob) for path, blob in files.items()])

    def _entry(self, path: str, blob: Blob) -> dict:
        entry = {"type": "file", "path": path, "size": len(blob.content), "oid": blob.oid}
        if blob.lfs:
            entry["lfs"] = {"oid": blob.sha256, "size": len(blob.content), "pointerSize": 134}
        return entry

    def preupload(self, repo_id: str, revision: str, *, body, query) -> Answer:
        existing = self.revision(repo_id, revision).files
        asked = json.loads(body)
        kept = existing[".gitignore"].content.decode() if ".gitignore" in existing else ""
        ignored = asked.get("gitIgnore") or kept
        patterns = [line.removeprefix("*") for line in ignored.splitlines() if line]
        return as_json(
            {
                "files": [
                    {
                        "path": file["path"],
                        "uploadMode": "lfs" if self._is_large(file) else "regular",
                        "shouldIgnore": any(file["path"].endswith(pattern) for pattern in patterns),
                        "oid": existing[file["path"]].etag if file["path"] in existing else None,
                    }
                    for file in asked["files"]
                ]
            }
        )

    def _is_large(self, file: dict) -> bool:
        return file["path"].endswith(LFS_SUFFIXES) or file["size"] > LFS_ABOVE

    def lfs_batch(self, repo_id: str, *, body, query) -> Answer:
        self.repo(repo_id)
        objects = []
        for asked in json.loads(body)["objects"]:
            answer = {"oid": asked["oid"], "size": asked["size"]}
            if asked["oid"] not in self.hub.lfs:
                answer["actions"] = {"upload": {"href": f"{self.hub.url}/lfs/{asked['oid']}"}}
            objects.append(answer)
        return as_json({"transfer": "basic", "objects": objects})

    def lfs_upload(self, oid: str, *, body, query) -> Answer:
        if hashlib.sha256(body).hexdigest() != oid:
            raise RefusedError(400, "the content is not that of the oid")
        self.hub.lfs[oid] = body
        return Answer()

    def commit(self, repo_id: str, revision: str, *, body, query) -> Answer:
        as_pull_request = "create_pr" in query
        repo, base = self.repo(repo_id), self.revision(repo_id, revision)
        if not as_pull_request:
            self.may_write(repo_id)
        header, *operations = [json.loads(line) for line in body.splitlines()]
        if header["value"].get("parentCommit", base.oid) != base.oid:
            raise RefusedError(412, "A commit has happened since. Please refresh and try again.")
        files = dict(base.files)
        for operation in operations:
            self._apply(files, operation["key"], operation["value"])
        title = header["value"]["summary"]
        if as_pull_request:
            repo.pull_requests.append(title)
            revision = f"refs/pr/{len(repo.pull_requests)}"
        made = repo.commit(revision, title, files, base.oid)
        answer = {"success": True, "commitOid": made.oid, "commitUrl": f"{self.hub.url}/{repo_id}/commit/{made.oid}"}
        if as_pull_request:
            answer["pullRequestUrl"] = f"{self.hub.url}/{repo_id}/discussions/{len(repo.pull_requests)}"
        return as_json(answer)

    def _apply(self, files: dict[str, Blob], key: str, value: dict):
        path = value["path"]
        if key == "file":
            files[path] = Blob(base64.b64decode(value["content"]), False)
        elif key == "lfsFile":
            if value["oid"] not in self.hub.lfs:
                raise RefusedError(400, f"{path} was never uploaded")
            files[path] = Blob(self.hub.lfs[value["oid"]], True)
        elif key == "deletedFile":
            if files.pop(path, None) is None:
                raise RefusedError(404, "A file with this name doesn't exist", "EntryNotFound")
        else:
            raise RefusedError(400, f"unknown operation {key}")

    def resolve(self, repo_id: str, revision: str, path: str, *, body, query) -> Answer:
        commit = self.revision(repo_id, revision)
        if path not in commit.files:
            raise RefusedError(404, "Entry not found", "EntryNotFound", {"X-Repo-Commit": commit.oid})
        blob = commit.files[path]
        return Answer(blob.content, {"X-Repo-Commit": commit.oid, "ETag": f'"{blob.etag}"'})
