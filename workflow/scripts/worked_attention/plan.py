"""What the rules share: which suites there are, what each asks for, digests of their contents, and which results are not whole.

The rules know suites by name alone; the number of cases changes no rule.
"""

import hashlib
import json
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path

from worked_attention.cases.columns import libraries, references
from worked_attention.cases.questions import COUNTED, load_counted, load_questions, refusal
from worked_attention.cases.strict_yaml import Problem, Problems
from worked_attention.cases.suites import load_config, load_suites, suites_in
from worked_attention.cases.words import short
from worked_attention.files.environment import installed
from worked_attention.files.lost import lacking
from worked_attention.pages.language import languages
from worked_attention.references.registry import ON_REQUEST, packages, present
from worked_attention.stages.catalogue import STAGES

FORWARD = [stage for stage in STAGES if stage != "backward"]
CONFIG, FOLDER = Path("config/config.yaml"), Path("config/suites")
QUESTIONS, COUNTED_FILE = Path("config/questions.yaml"), Path("config/counted.yaml")


class Plan:
    """One run: the checked config, the resolved suites, and what the rules need to know of them, by names of suites.

    suites: by name. files: the array files that they read. every: whether these are all that there are. place: the folder of what stands
    for all suites of the run. home: that of the front page that pages lead back to: of all suites, if there is one. present: the
    libraries that are installed.
    questions, counted: the short pages, and the cases that they only count; none in a run of some suites.
    installed: all packages, each with its version. drawn, studied, timed, compared, gradients, sampled: the suites
    that have figures, studies, measured costs, references, a stage backward, cases of which only a sample of rows is looked at. pairs: each
    (suite, library) to be compared. noted: the folder in which a job that had torch loaded noted what torch says of itself; none if no
    suite is compared with torch.
    """

    def __init__(self, overrides: dict, environment: Path | None = None):
        """From config/, and from what the command line says over config.yaml (`overrides`); raises `Problems`.

        environment: conda's file, if jobs run in what it describes: what is installed here is then nothing to them.
        """
        self.config = load_config(CONFIG, overrides)
        if (language := self.config["language"]) not in languages():
            message = f"there is no catalogue for {short(language)}, should be one of {', '.join(languages())}"
            raise Problems([Problem(f"{CONFIG.as_posix()} or --config", None, None, "language", message)])
        self.suites = load_suites(self.config, FOLDER)
        self.files = sorted({path for suite in self.suites.values() for path in suite["files"]})
        usual = load_config(CONFIG, {})["suites"]
        self.every = set(suites_in(FOLDER) if usual == "all" else usual) == set(self.suites)
        self.place = "results" if self.every else "results/some-suites"
        self.home = "results" if Path("results/index.html").exists() else self.place
        self.counted = load_counted(COUNTED_FILE) if self.every else {"cases": {}}
        self.questions = load_questions(QUESTIONS, self.suites | {COUNTED: self.counted}) if self.every else {}
        self.present, self.installed = present(libraries(), environment), installed()
        self.drawn = [name for name, suite in self.suites.items() if suite["figures"]]
        self.studied = [name for name, suite in self.suites.items() if suite["studies"]]
        self.timed = [name for name in self.studied if "costs" in self.suites[name]["studies"]]
        self.compared = [name for name in self.suites if self.references(name)]
        self.gradients = [name for name, suite in self.suites.items() if any(case["backward"] for case in suite["cases"].values())]
        self.sampled = [name for name, suite in self.suites.items() if any(case["sample"] for case in suite["cases"].values())]
        self.pairs = [(suite, library) for suite in self.compared for library in self.present if self.asked(suite, library)]
        self.noted = [f"results/{suite}/references/torch" for suite, library in self.pairs if library == "torch"][:1]

    def references(self, suite: str) -> list[str]:
        """The references that a suite asks for, as library.name, whether they are installed or not."""
        asked = self.suites[suite]["references"]
        every = references()[1:]  # truth is none
        usual = [name for name in every if name not in ON_REQUEST]
        return {"usual": usual, "all": every, "none": []}[asked] if isinstance(asked, str) else [name for name in every if name in asked]

    def asked(self, suite: str, library: str) -> list[str]:
        """The names of the references of one library that a suite asks for."""
        return [reference.split(".")[1] for reference in self.references(suite) if reference.split(".")[0] == library]

    def adapters(self, suite: str, library: str) -> list[str]:
        """The modules of these references, from workflow/scripts."""
        return [f"worked_attention/references/{library}_{name}.py" for name in self.asked(suite, library)]

    def versions(self, library: str) -> list[str]:
        """The packages of a library as they are installed, each with its version."""
        return [name for name in self.installed if name.split("-")[0] in packages(library)]

    def backward(self, suite: str) -> dict[str, str]:
        """The folder of stage backward, as named input, of a suite that has it."""
        return {"backward": f"results/{suite}/backward"} if suite in self.gradients else {}

    def beside(self, suite: str) -> dict[str, str]:
        """The folders that not every suite has, as named inputs: backward, truth, and a folder for each library."""
        truth = {"truth": f"results/{suite}/truth"} if suite in self.compared else {}
        references = {library: f"results/{suite}/references/{library}" for name, library in self.pairs if name == suite}
        return self.backward(suite) | truth | references

    def made(self, name: str) -> list[str]:
        """The path of what another target makes, of this run's suites or else of all; none if it was not made."""
        return [path for path in (f"{self.place}/{name}", f"results/{name}") if Path(path).is_file()][:1]

    @cached_property
    def digests(self) -> dict[str, str]:
        """By suite, a digest of what it says, once it is resolved, and of its array files: a comment or a touched file changes nothing."""
        found = {}
        for name, suite in self.suites.items():
            said = hashlib.sha256(json.dumps(suite).encode())
            for path in suite["files"]:
                said.update(hashlib.sha256(Path(path).read_bytes()).digest())
            found[name] = said.hexdigest()[:12]
        return found

    def folders(self, suite: str) -> list[str]:
        """The folders of all stages of a suite."""
        return [f"results/{suite}/{stage}" for stage in FORWARD] + list(self.backward(suite).values())

    @property
    def answered(self) -> dict[str, dict]:
        """What the pages say of which all suites are there, by name: {title, source, blocks}."""
        return {n: {k: q[k] for k in ("title", "source", "blocks")} for n, q in self.questions.items() if not q["missing"]}

    @property
    def refusals(self) -> dict[str, str]:
        """What is said against each suite that these pages show as refused, by its text; so an edited message makes them anew."""
        blocks = [block for question in self.answered.values() for block in question["blocks"] if isinstance(block, dict)]
        return {block["refused"]: refusal(block["refused"]) for block in blocks if "refused" in block}

    @property
    def asked_of(self) -> list[str]:
        """The suites that these pages take numbers from."""
        named = {p.suite for name in self.answered for p in self.questions[name]["places"]}
        return [suite for suite in self.suites if suite in named]

    @property
    def counted_digest(self) -> str:
        """A digest of the cases that are only counted."""
        return hashlib.sha256(json.dumps(self.counted["cases"]).encode()).hexdigest()[:12]

    def not_whole(self, suite: str) -> Iterator[tuple[str, str]]:
        """(folder, the first file that it has lost) of each stage of a suite; one that is not there is lost only if what follows is."""
        cases = self.suites[suite]["cases"].values()
        followed = Path(self.place, "summary.json").exists() or Path("results", suite, "comparison").exists()
        for stage in FORWARD + ["backward"] * (suite in self.gradients):
            folder = Path("results", suite, stage)
            if (followed or folder.exists()) and (lost := lacking(folder, cases)):
                yield folder.as_posix(), lost
