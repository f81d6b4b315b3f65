"""The house is in order: what documents, schemas, rules and pins say of each other is true."""

import ast
import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from conftest import ROOT

from imports import modules
from worked_attention.cases.columns import libraries
from worked_attention.cases.questions import load_questions
from worked_attention.cases.strict_yaml import Document
from worked_attention.cases.suites import RESERVED, load_config, load_suite

SCRIPTS = ROOT / "workflow" / "scripts"
SCHEMAS = sorted((ROOT / "workflow" / "scripts" / "worked_attention" / "schemas").glob("*.yaml"))
GUIDE = (ROOT / "config" / "README.md").read_text("utf-8")
PAGES = [
    path for folder in (ROOT, ROOT / "config", ROOT / "docs", ROOT / "results", ROOT / "benchmarks") for path in sorted(folder.glob("*.md"))
]


# Rules, as far as this page needs them: the text of each directive by rule and name


def snakefiles() -> list[Path]:
    return [ROOT / "Snakefile", *sorted((ROOT / "workflow" / "rules").glob("*.smk"))]


def rules() -> dict[str, dict[str, str]]:
    """{rule: {directive: text}} of every rule."""
    found = {}
    for path in snakefiles():
        for name, body in re.findall(r"^rule (\w+):\n((?:(?: .*)?\n)+)", path.read_text("utf-8") + "\n", re.MULTILINE):
            found[name] = dict(re.findall(r"^    (\w+):(.*(?:\n(?:        .*)?)*)", body, re.MULTILINE))
    return found


def digested(directives: dict[str, str]) -> list[ast.Call]:
    """The calls of `code(...)` in the params of a rule."""
    tree = ast.parse(f"f({directives.get('params', '').strip()})", mode="eval")
    return [node for node in ast.walk(tree) if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "code"]


def script(directives: dict[str, str]) -> Path:
    return SCRIPTS / Path(ast.literal_eval(directives["script"].strip())).name


def imports(source: Path) -> Iterator[Path]:
    """The modules of workflow/scripts that `source` imports itself."""
    text = source.read_text("utf-8")
    names = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names += [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    for name in names:
        module = SCRIPTS / f"{name.replace('.', '/')}.py"
        if module.is_file():
            yield module
            yield from (SCRIPTS / folder / "__init__.py" for folder in module.relative_to(SCRIPTS).parents if folder.name)


def needed(source: Path) -> set[str]:
    """Every module of workflow/scripts that `source` imports, directly or through others."""
    found, waiting = set(), [source]
    while waiting:
        new = set(imports(waiting.pop())) - found
        found |= new
        waiting += new
    return {path.relative_to(ROOT).as_posix() for path in found - {source}}


SCRIPTED = {name: directives for name, directives in rules().items() if "script" in directives}


def test_rules_are_found():
    assert {"parameters", "weights", "comparison", "verdict"} <= set(SCRIPTED)
    text = "".join(path.read_text("utf-8") for path in snakefiles())
    assert len(rules()) == len(re.findall(r"^\s*(?:rule|checkpoint)\b", text, re.MULTILINE))


WITHOUT_CASES = ("parameters", "power", "questions", "studies", "summary")  # these digest what suites say, or name what of cases/ they read


@pytest.mark.parametrize("rule", [rule for rule in SCRIPTED if "output" in SCRIPTED[rule]])
def test_a_rule_digests_its_own_script(rule: str):
    (call,) = digested(SCRIPTED[rule])
    assert ast.literal_eval(call.args[0]) == script(SCRIPTED[rule]).stem
    without = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.keywords}
    assert without == ({"without": "cases"} if rule in WITHOUT_CASES else {})
    loads = "worked_attention/cases/suites.py" in " ".join(needed(script(SCRIPTED[rule])))
    assert bool(without) == loads or rule in (
        "onnx_node_tests",
        "studies",
        "summary",
    )  # what these read besides suites is said in cases/, too


@pytest.mark.parametrize("rule", SCRIPTED)
def test_code_is_what_the_script_imports(rule: str):
    source = script(SCRIPTED[rule])
    assert set(modules(source.stem)) == needed(source) | {source.relative_to(ROOT).as_posix()}


def test_an_edit_changes_the_digest_of_those_who_import_it(tmp_path: Path):
    shutil.copytree(SCRIPTS, tmp_path / "workflow" / "scripts")
    edited = "workflow/scripts/worked_attention/stages/contexts.py"
    command = "import imports, sys; print(*(imports.code(name) for name in sys.argv[1:]))"
    rules = sorted(SCRIPTED)

    def digests() -> list[str]:
        there = [sys.executable, "-c", command, *(script(SCRIPTED[rule]).stem for rule in rules)]
        return subprocess.run(there, cwd=tmp_path / "workflow" / "scripts", capture_output=True, text=True, check=True).stdout.split()

    before = digests()
    with open(tmp_path / edited, "a", encoding="utf-8") as module:
        module.write("# edited\n")
    changed = {rule for rule, old, new in zip(rules, before, digests(), strict=True) if old != new}
    assert changed == {rule for rule in rules if edited in needed(script(SCRIPTED[rule]))}
    assert "contexts" in changed and "weights" not in changed


def test_the_references_of_the_schema_are_the_adapters():
    tells = re.compile(r"^def convention\(|^from .* import convention\b", re.MULTILINE)
    adapters = {path.stem for path in (PACKAGE / "references").glob("*.py") if tells.search(path.read_text("utf-8"))}
    assert adapters == {f"{library}_{name}" for library, names in libraries().items() for name in names}


@pytest.mark.parametrize("rule", SCRIPTED)
def test_a_rule_has_a_log_and_an_environment(rule: str):
    assert "results/logs/" in SCRIPTED[rule].get("log", "")
    assert SCRIPTED[rule].get("conda", "").strip() == '"../../envs/attention.yaml"'


def test_every_script_belongs_to_a_rule():
    used = {script(directives) for directives in SCRIPTED.values()}
    libraries = {ROOT / path for source in used for path in needed(source)}
    text = "".join(path.read_text("utf-8") for path in snakefiles())
    imported = {SCRIPTS / f"{name.replace('.', '/')}.py" for name in re.findall(r"^from ([\w.]+) import", text, re.MULTILINE)}
    elsewhere = {path for path in imported if path.is_file()}
    elsewhere |= {ROOT / path for source in elsewhere for path in needed(source)}
    elsewhere |= set((SCRIPTS / "worked_attention" / "references").glob("*.py"))  # imported by name
    elsewhere |= {SCRIPTS / "sitecustomize.py"}  # by Python itself, as each job starts
    fronts = {SCRIPTS / "worked_attention" / name for name in ("command.py", "pytest_plugin.py")}  # ways in without Snakemake
    libraries |= {ROOT / path for source in fronts for path in needed(source)} | fronts
    assert set(SCRIPTS.rglob("*.py")) == used | libraries | elsewhere


def test_slurm_groups_name_rules():
    profile = yaml.safe_load((ROOT / "profiles" / "slurm" / "config.yaml").read_text("utf-8"))
    variants = {name for path in snakefiles() for name in re.findall(r"^use rule \w+ as (\w+)", path.read_text("utf-8"), re.MULTILINE)}
    assert {group.split("=")[0] for group in profile["groups"]} <= set(rules()) | variants


# Pins


def pins(name: str) -> set[str]:
    lines = (ROOT / "envs" / name).read_text("utf-8").splitlines()
    return {line.strip() for line in lines if line.strip() and not line.startswith(("#", "-r"))}


def test_conda_has_the_pins_of_pip():
    environment = yaml.safe_load((ROOT / "envs" / "attention.yaml").read_text("utf-8"))
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    assert set(pip) == pins("requirements.txt")
    assert environment["channels"][0] == "conda-forge"
    (python,) = [item for item in environment["dependencies"] if str(item).startswith("python=")]
    assert python in ("python=3.11", "python=3.12")


@pytest.mark.parametrize("path", sorted((ROOT / "envs").glob("*.txt")), ids=lambda path: path.name)
def test_requirements_are_pinned(path: Path):
    assert all(re.fullmatch(r"[a-z0-9-]+==[0-9.]+", pin) for pin in pins(path.name))


# Schemas and config/README.md


TABLES = runpy.run_path(str(ROOT / "docs" / "option_tables.py"))
OPTIONS = TABLES["options"]()
KEYWORDS = (
    "description type enum pattern minimum maximum exclusiveMinimum default otherwise only_for items uniqueItems minItems maxLength "
    "required properties additionalProperties minProperties maxProperties propertyNames if then else"
)


@pytest.mark.parametrize("key", OPTIONS)
def test_every_option_is_described(key: str):
    rule, required = OPTIONS[key]
    assert rule.get("description") and "type" in rule
    assert set(rule) <= set(KEYWORDS.split())
    assert required + ("default" in rule) + ("otherwise" in rule) <= 1
    assert set(rule.get("only_for", {})) <= {name.rpartition(".")[2] for name in OPTIONS}


def test_tables_of_the_guide_are_those_of_the_schemas():
    assert TABLES["printed"](GUIDE) == GUIDE, "python docs/option_tables.py"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("| `softcap` | number > 0 |", "| `softcap` | number |"),  # another type
        ("| `rotary.base` | number > 0 | `10000` |", "| `rotary.base` | number > 0 | `1000` |"),  # another default
        ("`softcap` | number > 0 | none | Scaled", "`softcap` | number > 0 | none | Raw"),  # another meaning
        ("`logs`, ", ""),  # a name that is taken and not listed
    ],
)
def test_a_stale_guide_is_printed_anew(old: str, new: str):
    assert old in GUIDE
    assert TABLES["printed"](GUIDE.replace(old, new)) == GUIDE


@pytest.mark.parametrize(("change", "words"), [("", "softcap"), ("| `scale` |\n", "scale"), ("| `softcup` |\n", "softcup")])
def test_an_option_in_no_table_or_in_two_is_refused(change: str, words: str):
    row = next(line for line in GUIDE.splitlines(True) if line.startswith("| `softcap` |"))
    with pytest.raises(ValueError, match=words):
        TABLES["printed"](GUIDE.replace(row, change))


def test_folders_of_results_are_taken_names():
    text = "".join(path.read_text("utf-8") for path in snakefiles())
    folders = set(re.findall(r"results/([a-z_]+)/", text))
    assert {"logs", "export"} <= folders
    assert folders <= set(RESERVED)


def examples() -> list:
    found = re.findall(r"^```yaml\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)
    return [pytest.param(example, id=str(i)) for i, example in enumerate(found)]


@pytest.mark.parametrize("example", examples())
def test_examples_of_the_guide_load(example: str, tmp_path: Path):
    limits = {"max_array_mb": 256}
    path = tmp_path / "example.yaml"
    if "blocks:" in example:  # a question
        path.write_text(f"questions:\n{example}", "utf-8")
        assert load_questions(path, {"handworked": load_suite(ROOT / "config" / "suites" / "handworked.yaml", limits)})
        return
    if example.startswith("  "):  # a case to be added to a suite that is there
        example = (ROOT / "config" / "suites" / "handworked.yaml").read_text("utf-8") + example
    path.write_text(example, "utf-8")
    if re.search("^cases:", example, re.MULTILINE):
        assert load_suite(path, limits)["cases"]
    else:
        assert load_config(path, {})


ON_THE_COMMAND_LINE = {"archive", "archives", "keep_going", "submission", "contract", "digits", "case", "sheets", "answers"}


def test_shipped_config_says_every_default():
    schema = Document(ROOT / "workflow" / "scripts" / "worked_attention" / "schemas" / "config.schema.yaml", "config").data
    path = ROOT / "config" / "config.yaml"
    assert set(Document(path, "config").data) == set(schema["properties"]) - ON_THE_COMMAND_LINE
    config = load_config(path, {})
    for key, (rule, _) in TABLES["walk"](schema):
        value = config
        for part in key.split("."):
            value = value[part]
        if rule["default"] != {}:
            assert value == rule["default"], key


# Pages


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path):
    links = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text("utf-8"))
    missing = [link for link in links if not (page.parent / link).exists()]
    assert not missing


def test_readme_gives_two_commands_for_a_fresh_clone():
    commands = [line for line in (ROOT / "README.md").read_text("utf-8").splitlines() if line.startswith("python3 -m venv .venv && ")]
    assert len(commands) == 2
    assert commands[0].endswith("snakemake --cores 1") and "envs/requirements.txt" in commands[0]
    assert "python -m pytest" in commands[1] and "envs/requirements-test.txt" in commands[1]


@pytest.mark.parametrize("name", ["overview", "page"])
def test_picture_of_the_readme_is_small(name: str):
    picture = ROOT / "docs" / f"{name}.png"
    assert f"docs/{name}.png" in (ROOT / "README.md").read_text("utf-8")
    assert picture.read_bytes().startswith(b"\x89PNG") and picture.stat().st_size < 200_000


def test_changelog_and_citation_name_the_same_version():
    headings = re.findall(r"^## (.+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == "Unreleased"
    versions = [tuple(map(int, re.fullmatch(r"(\d+)\.(\d+)\.(\d+)(?: \(.*\))?", heading).groups())) for heading in headings[1:]]
    assert versions == sorted(set(versions), reverse=True)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation)
    assert citation["cff-version"] == "1.2.0"
    assert citation["version"] == ".".join(map(str, versions[0]))
    assert citation["license"] in (ROOT / "LICENSE").read_text("utf-8")
    assert all(author.get("name") for author in citation["authors"])


def test_no_file_names_a_place_of_one_machine():
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True)
    if listing.returncode:
        pytest.skip("not a git clone")
    place = re.compile(rb"(?<![\w.~/}-])(/(home|root|Users|mnt|work)/[\w.]|[A-Z]:\\\w)")
    paths = [ROOT / name for name in listing.stdout.decode("utf-8").split("\0") if name]
    named = [path for path in paths if path.is_file() and path.suffix != ".png" and place.search(path.read_bytes())]
    assert not named


# Rooms

LEARNS_FROM = {  # which rooms of the package a room may import; none runs back
    "stages": set(),
    "cases": {"stages"},
    "files": {"stages"},
    "archives": {"cases", "files", "pages", "referee", "stages"},
    "references": {"stages"},
    "drawing": set(),
    "referee": {"cases", "stages"},
    "fuzzing": {"cases", "referee", "stages"},
    "studies": {"cases", "drawing", "files", "referee", "stages"},
    "conformance": {"drawing", "files", "references", "stages"},
    "plan": {"cases", "files", "pages", "references", "stages"},
    "command": {"cases", "files", "fuzzing", "referee", "stages"},
    "pytest_plugin": {"cases", "referee", "stages"},
    "pages": {"cases", "stages"},
    "worksheets": {"cases", "files", "pages", "referee", "stages"},
    "slurm": set(),
    "terminal": set(),
}
PACKAGE = SCRIPTS / "worked_attention"


def rooms() -> dict[str, set[str]]:
    """For each room (or module beside the rooms), the others that its code imports."""
    found: dict[str, set[str]] = {}
    for path in PACKAGE.rglob("*.py"):
        room = path.relative_to(PACKAGE).parts[0].removesuffix(".py")
        for name in imported(path):
            parts = name.split(".")
            if parts[0] == "worked_attention" and len(parts) > 1 and parts[1] not in (room, "__version__"):
                found.setdefault(room, set()).add(parts[1])
    return found


def imported(path: Path) -> Iterator[str]:
    """Full names of what a module imports."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_rooms_learn_in_one_direction():
    assert {path.name.removesuffix(".py") for path in PACKAGE.iterdir() if path.name[0] not in "_." and path.name != "schemas"} == set(
        LEARNS_FROM
    )
    for room, others in rooms().items():
        assert others <= LEARNS_FROM[room], room
    settled: set[str] = set()
    while rest := {room for room, others in LEARNS_FROM.items() if room not in settled and others <= settled}:
        settled |= rest
    assert settled == set(LEARNS_FROM), "a circle"


def test_truth_learns_nothing_from_the_stages_but_the_catalogue():
    names = {
        name for path in (PACKAGE / "referee" / "truth").glob("*.py") for name in imported(path) if name.startswith("worked_attention.")
    }
    assert {name for name in names if not name.startswith("worked_attention.referee.truth")} == {
        f"worked_attention.stages.catalogue.{name}" for name in ("BOOLEAN", "CATALOGUE", "COMPUTED")
    }
