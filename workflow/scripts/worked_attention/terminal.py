"""What a run says while it goes and when it ends: progress on a terminal, nothing but the end in a pipe, the failing job's own words last.

Snakemake tells every job at length; all of that stays in its own log, .snakemake/log, and on the screen for --dry-run and --verbose.
"""

import errno
import logging
import os
import re
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import TextIO

FOR_USERS = ("Unlock",)  # of what Snakemake says in passing; so is that nothing is to be done
TALKING = (
    "verdict",
    "archive",
    "verify",
    "reproduce",
    "compare",
    "judge",
    "power",
    "onnx_node_tests",
)  # rules whose scripts print; each is the last of its run
ENDINGS = {  # where to look, by target; of rules whose scripts do not say it
    "all": "All cases: {place}/index.html. The numbers: results/{{suite}}/{{stage}}/{{case}}/",
    "conformance": "{place}/conformance.svg, .csv and .json",
    "export": "results/export/{{suite}}/README.md says how to read what stands beside it",
    "measured": "results/studies/{{suite}}/measured/",
}
UNWRITABLE = re.compile(  # the last line of a traceback: a full disk, or one that may not be written
    rf"^\w*Error: \[Errno (?:{errno.ENOSPC}|{errno.EDQUOT}|{errno.EROFS}|{errno.EACCES})\] (.+): '.*(results|\.snakemake)/", re.MULTILINE
)
INTERRUPTED = "Error: interrupted; the same command goes on from there"
SLURM = re.compile(r"^(slurm\S*:|srun:|\[[\d-]+T[^]]+\]) error: .+", re.MULTILINE)  # newer ones: the time in place of `slurmstepd-node:`
SHOWN = 40  # lines of a failed job's log


class Terminal(logging.Filter):
    """A filter of Snakemake's messages on their way to `stream`, a terminal or not."""

    def __init__(self, stream: TextIO, ending: Callable[[], str]):
        super().__init__()
        self.stream, self.ending = stream, ending
        self.began, self.live, self.line = time.time(), stream.isatty(), ""
        self.failed: list[tuple[str, list[Path], str, list[Path]]] = []
        self.jobs: dict[int, str] = {}
        self.sent: dict[int, list[str]] = {}  # of jobs that a cluster ran as one: the log of that one
        self.status = self.latest = ""

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a message goes on as it is; jobs that start, end and fail are noted here, and told by `draw` and `failures`."""
        event, text = getattr(getattr(record, "event", None), "name", None), str(record.msg)
        match event:
            case "PROGRESS":
                self.draw(f"{record.done} of {record.total} jobs done{self.latest}", record.done / record.total)
            case "JOB_INFO":
                self.jobs[record.jobid] = " of ".join([record.rule_name, *dict(record.wildcards).values()][:2])
                self.latest = f", now {self.jobs[record.jobid]}"
                if record.rule_name in TALKING:
                    self.draw("")
                    self.live = False
            case "GROUP_ERROR":
                self.sent.update({job["jobid"]: record.aux_logs for job in record.job_error_info})
            case "JOB_ERROR":
                logs = [Path(log) for log in [*record.log, *self.sent.get(record.jobid, [])]]
                clusters = [log for log in logs if ".snakemake" in log.parts]  # an executor's own, beside those that the rules declare
                own = [log for log in logs if log not in clusters]
                self.failed.append((self.jobs.get(record.jobid, record.rule_name), own, self.status, clusters))
            case "ERROR" if text.startswith("Traceback"):  # of Snakemake itself, which then ends without a word on what had failed before
                self.draw("")
                if full := UNWRITABLE.search(text):
                    record.msg = f"Error: {full[2]}/ cannot be written: {full[1]}"
                elif "KeyboardInterrupt" in text or "SIGINT" in self.status:
                    record.msg = INTERRUPTED
                return True
            case _ if text.startswith("RuleException:\nCalledProcessError"):
                self.status = (re.findall(r"died with .*|exit status \d+", text) or ["of itself"])[-1].rstrip(".")
            case _ if text.startswith("Nothing to be done"):
                record.msg = f"{text}\n{self.ending()}".rstrip()
                return True
            case _ if record.levelno > logging.INFO or text.startswith(FOR_USERS):
                self.draw("")
                return not self.failed
        return False

    def draw(self, line: str, share: float = 0) -> None:
        """Put a line with a bar over the last one, on a terminal."""
        if not self.live or line == self.line:
            return
        done = round(30 * share)
        shown = f"[{'#' * done}{'.' * (30 - done)}] {line}" if line else ""
        self.stream.write(f"\r\033[K{shown[: os.get_terminal_size(self.stream.fileno()).columns - 1]}")
        self.stream.flush()
        self.line = line

    def failures(self) -> str:
        """What the failed jobs said, each from its log; the first cause comes last, where the eye is."""
        self.draw("")
        if "SIGINT" in self.status:
            return INTERRUPTED
        told, silent, spoken = [], {}, set()
        for job, logs, status, clusters in reversed(self.failed):
            written = [log for log in logs if log.is_file() and log.stat().st_mtime >= self.began - 1]
            words = "\n".join(log.read_text("utf-8", "replace") for log in written).strip().splitlines()
            if words:
                told += [f"{job} failed, says {', '.join(map(str, written))}:", *words[-SHOWN:]]
                spoken.update(clusters)
            elif clusters:
                silent.update({log: [job, *silent.get(log, [])] for log in clusters})
            elif status == "exit status 1":
                told.append(f"Error: {job} failed before it could open its log; what Python said of it stands above")
            else:
                told.append(f"Error: {job} was stopped from outside ({status}), perhaps for want of memory")
        for log, (job, *more) in silent.items():
            if log not in spoken:
                told.append(f"Error: the cluster ended its job for {job}{f' and {len(more)} others' if more else ''}; {cause(log)}")
        return "\n".join(told)


def cause(log: Path) -> str:
    """Why a job of the cluster ended: the first error of Slurm in its log."""
    said = SLURM.search(log.read_text("utf-8", "replace") if log.is_file() else "")
    return f"{log} says: {said[0]}" if said else f"{log} does not say why"


def ending(targets: set[str], place: str) -> str:
    """Where to look after a run. targets: those of the run, none for the default one. place: the folder of what stands for all suites."""
    return "\n".join(ENDINGS[target].format(place=place) for target in sorted(targets) or ["all"] if target in ENDINGS)


def attach(handlers: list[logging.Handler], said: Callable[[], str]) -> Terminal | None:
    """Put a `Terminal` before the one of Snakemake's `handlers` that writes to the screen; None if there is none.

    said: gives what to end with.
    """
    for handler in handlers:
        if handler.name == "DefaultStreamHandler":
            terminal = Terminal(handler.stream, said)
            handler.filters.insert(0, terminal)
            sys.excepthook = _uncaught
            return terminal
    return None


def _uncaught(kind: type[BaseException], error: BaseException, where: TracebackType | None) -> None:
    """What Python says of an error that ends it: of a second Ctrl-C, which may come while Snakemake tidies up after the first, a line."""
    if issubclass(kind, KeyboardInterrupt):
        print(INTERRUPTED, file=sys.stderr)
    else:
        sys.__excepthook__(kind, error, where)
