"""docs/implementers.md: every file and every command on that page, run in the order in which they stand."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

PAGE = (ROOT / "docs" / "implementers.md").read_text("utf-8")
SECTIONS = dict(re.findall(r"^## (.+)\n((?:(?!## ).*\n)*)", PAGE, re.MULTILINE))
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"(?:#|//|/\*) ([\w./]+\.\w+)")  # the first line of a block that is a file
NEEDS = {"C": ["cc"], "JavaScript": ["node"]}


@pytest.fixture(scope="module")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `worked-attention` and `python` as an install has them; tests/test_package.py tries the wheel itself."""
    folder = tmp_path_factory.mktemp("bin")
    plugin = "import sys, pytest; sys.exit(pytest.main(sys.argv[3:] + ['-p', 'worked_attention.pytest_plugin', '-p', 'no:cacheprovider']))"
    for name, code in {"worked-attention": "from worked_attention.command import main; main()", "python": plugin}.items():
        (folder / name).write_text(f"#!{sys.executable}\n{code}\n", "utf-8")
        (folder / name).chmod(0o755)
    return folder


def files() -> dict[str, str]:
    """The files of the page by name."""
    return {found[1]: text for _, text in BLOCK.findall(PAGE) if (found := NAMED.match(text))}


def run(command: str, folder: Path, commands: Path, before: int) -> tuple[str, int]:
    """What a line of a console prints, and how it ends; `before`: how the last one ended."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT / "workflow" / "scripts"),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    done = subprocess.run(
        ["sh", "-c", command.replace("$?", str(before))], cwd=folder, env=env, capture_output=True, encoding="utf-8", timeout=120
    )
    assert "Traceback" not in done.stderr, done.stderr
    return done.stdout, done.returncode


def fits(shown: str, said: str) -> bool:
    """Whether what was `said` is what the page shows, where a line `...` stands for any lines."""
    parts = [re.escape(part) for part in re.split(r"^\.\.\.\n", shown, flags=re.MULTILINE)]
    return re.fullmatch(r"(?:.*\n)*".join(parts), said) is not None


@pytest.mark.parametrize("section", [name for name, text in SECTIONS.items() if "```console" in text])
def test_the_page_says_what_happens(section: str, commands: Path, tmp_path: Path):
    if missing := [program for program in NEEDS.get(section, ()) if not shutil.which(program)]:
        pytest.skip(f"there is no {missing[0]}")
    if "fuzz" in SECTIONS[section]:
        pytest.importorskip("hypothesis")
    for name, text in files().items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    shutil.copy(ROOT / "examples" / "readers" / "read_golden.mjs", tmp_path)
    status = 0
    for kind, text in BLOCK.findall(SECTIONS[section]):
        if kind == "console":
            for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
                assert status == 0 or command == "echo $?", f"before {command}: ended with {status}"
                said, status = run(command, tmp_path, commands, status)
                assert fits(shown, said), f"$ {command}\n{said}"
    assert status == 0


def test_a_page_that_says_something_else_is_noticed():
    assert fits("a\n...\nc\n", "a\nb\nb\nc\n") and fits("...\n", "") and fits("", "")
    assert not fits("a\n...\nc\n", "a\nb\n") and not fits("a.\n", "ab\n") and not fits("", "a\n") and not fits("a\n", "a\nb\n")


def test_the_workflow_of_the_page(commands: Path, tmp_path: Path):
    """The step that judges, as CI runs it, with a right kernel and a wrong one."""
    steps = yaml.safe_load(files()[".github/workflows/attention.yml"])["jobs"]["attention"]["steps"]
    (judge,) = [step["run"] for step in steps if step.get("run", "").startswith("worked-attention ")]
    for name in ("my_attention.py", "judged.py"):
        (tmp_path / name).write_text(files()[name], "utf-8")
    said, status = run(judge, tmp_path, commands, 0)
    assert status == 0 and "::error" not in said and (tmp_path / "attention.xml").read_text("utf-8").count("<testcase ") > 20
    (tmp_path / "my_attention.py").write_text(files()["my_attention.py"].replace("scale * query", "query"), "utf-8")
    said, status = run(judge, tmp_path, commands, 0)
    assert status == 1 and "::error file=judged.py,title=handworked/two_heads and " in said and "should be" in said
