"""A kernel in a Python file, in a process of its own, asked for case after case; one that ends is started anew."""

import json
import time
from pathlib import Path

from worked_attention.fuzzing.search import TooSlow
from worked_attention.referee.declarations import declared
from worked_attention.referee.handed import handed
from worked_attention.referee.running import Ended, Running
from worked_attention.referee.submissions import Arrays, Sent, Submission, Unreadable, received

SECONDS = 60  # for one case


class Kernel:
    """The functions of the file at `path`: call it with a resolved case and its parameters. Use it in a `with` statement."""

    def __init__(self, path: Path):
        """Raises Unreadable if nothing there can be called."""
        self.path = Submission(path, {}, {}).path
        if self.path.is_dir():
            raise Unreadable("is a folder; cases that nobody has seen are for a Python file to answer")
        self.running: Running | None = None
        try:
            said = self._started().load()
            self.conventions = declared(json.loads(said)) if said else {}
        except (Ended, ValueError, RecursionError) as error:
            self.__exit__()
            raise Unreadable(str(error) if isinstance(error, Ended) else f"CONVENTIONS: {error}") from None

    def __enter__(self) -> "Kernel":
        return self

    def __exit__(self, *_) -> None:
        if self.running:
            self.running.__exit__()
            self.running = None

    def __call__(self, case: dict, given: Arrays) -> Sent:
        """Its answer; whatever ends its process is one, too. Raises TooSlow."""
        try:
            if self.running is None:
                self._started().load()
            self.running.deadline = time.monotonic() + SECONDS
            word, text, _, files = self.running.answer(case, handed(case, given))
            return received(word, text, files)
        except Ended as ended:
            late = time.monotonic() > self.running.deadline
            self.__exit__()
            if late:
                raise TooSlow(str(ended)) from None
            return Sent(problems=[str(ended)], word="failed")

    def _started(self) -> Running:
        self.running = Running(self.path, SECONDS)
        return self.running
