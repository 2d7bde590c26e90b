"""The package of npm: it is built, its types take the bodies of the pages, its example works."""

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from crabpath_retrievers import __version__
from crabpath_server import Access, add_token, create_app

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "adapters" / "npm"
EXPLORER = ROOT / "adapters" / "crabpath_server" / "explorer"
MADE = shutil.ignore_patterns("node_modules", "dist", "schema.ts", "*.tgz")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # the compiler, on a busy machine


def run(*command: str, cwd: Path, **environment: str) -> str:
    """What a program prints; it must succeed."""
    own = {**os.environ, **environment}
    done = subprocess.run(command, cwd=cwd, env=own, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """A copy of the package with what its lock file names, built and packed."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("npm is not installed; it comes with Node.js")
    root = tmp_path_factory.mktemp("clone")
    folder = root / "adapters" / "npm"
    shutil.copytree(PACKAGE, folder, ignore=MADE)
    description = root / "docs" / "reference" / "openapi.json"
    description.parent.mkdir(parents=True)
    shutil.copy(ROOT / "docs" / "reference" / "openapi.json", description)
    install = [npm, "ci", "--no-audit", "--no-fund"]
    installed = subprocess.run(install, cwd=folder, capture_output=True, check=False)
    if installed.returncode:
        pytest.skip("the registry of npm does not answer")
    run("npm", "pack", cwd=folder)
    return folder


def test_the_package_holds_the_types_of_this_release(package):
    about = json.loads((package / "package.json").read_text())
    assert (about["version"], about["private"]) == (__version__, True)
    types = (ROOT / "docs" / "reference" / "crabpath.d.ts").read_text()
    assert (package / "src" / "schema.ts").read_text() == types  # make openapi writes it
    (packed,) = package.glob("*.tgz")
    names = run("tar", "--list", "--file", str(packed), cwd=package).split()
    wanted = ("index.js", "index.d.ts", "schema.d.ts")
    assert {f"package/dist/{name}" for name in wanted} <= {*names}
    assert {"package/LICENSE", "package/README.md", "package/example.mjs"} <= {*names}
    assert not any("node_modules" in name or "/src/" in name for name in names)


def list_bodies() -> list[tuple[str, str]]:
    """Paths and bodies that the page about REST and the explorer send, the latter as code."""
    page = (ROOT / "docs" / "how-to" / "rest.md").read_text(encoding="utf-8")
    found = re.findall(r"curl -s\w* \S+?:8765/v1/(\S+)(?: -H '[^']*')*\s*\\?\s+-d '([^']+)'", page)
    for file in sorted(EXPLORER.glob("*.js")):
        code = file.read_text(encoding="utf-8").replace("this.", "self.")
        found += re.findall(r'post\("([\w/]+)", (\{.*?\})(?:, \w+)?\)', code)
        built = re.findall(r"const body = (\{.*?\});", code)
        found += [("feedback" if "turn_id" in body else "query", body) for body in built]
    return found


def test_bodies_of_the_pages_have_the_types(package):
    """By ``tsc --strict``; names of the explorer's own stand for any value."""
    bodies = list_bodies()
    paths = {"query", "search", "documents", "feedback", "undo", "undo/user", "graph/edges"}
    assert paths <= {path for path, _ in bodies}
    used = re.findall(r"[A-Za-z_]\w*", re.sub(r'"[^"]*"', "", " ".join(b for _, b in bodies)))
    names = sorted({*used} - {"null", "true", "false"})
    lines = [
        'import { connect } from "crabpath";',
        'const client = connect("http://127.0.0.1:8765");',
        *(f"declare const {name}: any;" for name in names),
        *(f'await client.POST("/v1/{path}", {{ body: {body} }});' for path, body in bodies),
    ]
    (package / "bodies.mts").write_text("\n".join(lines))
    run("npm", "run", "check", "--", "bodies.mts", cwd=package)
    lines.append('await client.POST("/v1/query", { body: { txt: "a name that is none" } });')
    (package / "wrong.mts").write_text("\n".join(lines))
    with pytest.raises(AssertionError, match=r"wrong\.mts.*'txt'"):
        run("npm", "run", "check", "--", "wrong.mts", cwd=package)


def test_the_example_asks_judges_and_undoes(package, memory, serve, token_file):
    token = add_token(token_file, ["ann"], ["read", "feedback"])
    address = serve(create_app(memory, access=Access.from_file(token_file)))
    printed = run("node", "example.mjs", cwd=package, CRABPATH_URL=address, CRABPATH_TOKEN=token)
    assert "Deploy" in printed
    assert printed.splitlines()[-2:] == ["feedback applied", "undo undone"]
