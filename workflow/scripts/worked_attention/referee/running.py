"""A Python file that is called case by case in a process of its own, as `caller` does it; this end trusts nothing that comes back.

What it prints is kept, up to a size. The process, and what it started in its group, ends with this object or with the judge.
What this does not do: the file runs with the rights of whoever judges it, and code that wants to can look for the token in its own
process, or leave the group (setsid). To judge what is not trusted, use a container.
"""

import json
import os
import secrets
import selectors
import signal
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import numpy as np

from worked_attention.referee import caller
from worked_attention.referee.caller import SMALL, TOKEN, frame, largest

SECONDS = 300  # for all cases of a file together
PRINTED = 1_000_000  # bytes of what it prints that are kept
GRACE = 2.0  # seconds in which it may end by itself when all is answered
PATH = str(Path(caller.__file__).parents[2])  # where our package lies
START = (
    "import sys; sys.path.insert(0, sys.argv[1]); from worked_attention.referee.caller import main; from pathlib import Path; "
    "del sys.path[0]; main(Path(sys.argv[2]), int(sys.argv[3]))"
)
WORDS = (None, "unsupported", "unreadable", "failed")  # of an answer
DISTURBED = "wrote to where only answers belong, so that nothing more can be believed"


class Ended(Exception):
    """The process answers no more, and why, in a few words that continue its name."""


class Running:
    """A process for the file at `path`, for at most `seconds`. Use it in a `with` statement; `load` it, then ask for answers."""

    def __init__(self, path: Path, seconds: float):
        self.seconds, self.deadline = seconds, time.monotonic() + seconds
        self.printed: dict[str, bytearray] = {}  # by what was being done
        self.lost = 0  # bytes printed beyond what is kept
        self.doing = "loading it"
        self.channel, theirs = socket.socketpair()
        paths = [p for p in os.environ.get("PYTHONPATH", "").split(os.pathsep) if p and p != PATH]
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-u", "-c", START, PATH, str(path), str(theirs.fileno())],
            stdin=subprocess.PIPE,  # never written to: that it is closed tells the process that the judge is gone
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
        )
        theirs.close()
        os.set_blocking(self.process.stdout.fileno(), False)
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.channel, selectors.EVENT_READ)
        self.selector.register(self.process.stdout, selectors.EVENT_READ)

    def __enter__(self) -> "Running":
        return self

    def __exit__(self, *_) -> None:
        """Let it end by itself for a moment, then kill it and all that it started."""
        self.selector.unregister(self.channel)
        self.channel.close()
        until = time.monotonic() + GRACE
        while self.process.poll() is None and time.monotonic() < min(until, self.deadline):
            self._listen(0.02)
        with suppress(ProcessLookupError):  # none of its group is left
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._listen(0)
        self.process.stdin.close()
        self.process.stdout.close()
        self.selector.close()

    def load(self) -> str:
        """Load the file; returns its CONVENTIONS as JSON, if it has any. Raises Ended if that fails, or if it holds no function to call."""
        word, text, _, _ = self._ask({}, {}, {})
        if word:
            raise Ended(text)
        return text

    def answer(self, case: dict, arrays: dict[str, np.ndarray]) -> tuple[str | None, str, list[str], dict[str, bytes]]:
        """(word, text, names, arrays) of the file for a resolved `case` with its parameters `arrays`, by name.

        The word is None where arrays came, which are .npy files that nobody has opened yet; names are those of what is no array that the
        case computes. Raises Ended.
        """
        self.doing = f"{case['suite']}/{case['name']}"
        computed = {name: tuple(shape) for name, shape in case["shapes"].items() if name not in case["arrays"]["parameters"]}
        return self._ask({"case": case}, arrays, computed)

    def output(self) -> str:
        """What the file printed, by what it was called for."""
        parts = []
        for doing, printed in self.printed.items():
            text = printed.decode("utf-8", "backslashreplace")
            parts.append(
                f"== {doing}\n" + "".join(c if c.isprintable() or c in "\n\t" else repr(c)[1:-1] for c in text).rstrip("\n") + "\n"
            )
        return "".join(parts) + f"== {self.lost:,} more bytes were left out\n" * bool(self.lost)

    def _ask(self, header: dict, arrays: dict, shapes: dict) -> tuple[str | None, str, list[str], dict[str, bytes]]:
        token = secrets.token_bytes(TOKEN)
        if any(key.fileobj is self.channel for key, _ in self.selector.select(0)) and self.channel.recv(1, socket.MSG_PEEK):
            raise Ended(DISTURBED)
        try:
            self.channel.settimeout(max(self.deadline - time.monotonic(), 0.001))
            self.channel.sendall(frame(token, header, arrays))
        except TimeoutError:
            raise Ended(self._too_slow()) from None
        except OSError:
            raise Ended(self._ending()) from None
        if self._read(TOKEN) != token:
            raise Ended(DISTURBED)
        head, body = int.from_bytes(self._read(8)), int.from_bytes(self._read(8))
        if head > SMALL or body > sum(map(largest, shapes.values())):
            raise Ended(DISTURBED)
        found = _checked(self._read(head), self._read(body), shapes)
        self._listen(0)
        return found

    def _read(self, size: int) -> bytes:
        """So many bytes of an answer."""
        data = bytearray()
        while len(data) < size:
            if time.monotonic() > self.deadline:
                raise Ended(self._too_slow())
            gone = self.process.poll() is not None
            if self._listen(0.2):
                try:
                    part = self.channel.recv(min(size - len(data), SMALL))
                except ConnectionError:
                    part = b""
                if not part:
                    raise Ended(self._ending())
                data += part
            elif gone:  # something else holds the other end
                raise Ended(self._ending())
        return bytes(data)

    def _listen(self, seconds: float) -> bool:
        """Wait so long for an answer or for something printed, and keep what is printed; whether there is something of an answer."""
        found = {key.fileobj for key, _ in self.selector.select(seconds)}
        if self.process.stdout in found:
            for _ in range(32):  # and not for ever, if something prints without end
                part = self.process.stdout.read(1 << 16)
                if part is None:
                    break
                if not part:
                    self.selector.unregister(self.process.stdout)
                    break
                kept = part[: max(PRINTED - sum(map(len, self.printed.values())), 0)]
                if kept:
                    self.printed.setdefault(self.doing, bytearray()).extend(kept)
                self.lost += len(part) - len(kept)
        return self.channel in found

    def _too_slow(self) -> str:
        return f"took more than {self.seconds:g} seconds and was stopped"

    def _ending(self) -> str:
        """How the process ended, which it may still be about to."""
        until = time.monotonic() + GRACE
        while (code := self.process.poll()) is None and time.monotonic() < until:
            self._listen(0)
            time.sleep(0.02)
        if code is None:
            return "closed the channel on which it answers"
        if code < 0:
            return f"was ended by signal {signal.Signals(-code).name}"
        return f"ended with code {code}" if code else "ended by itself"


def _checked(head: bytes, body: bytes, shapes: dict[str, tuple[int, ...]]) -> tuple[str | None, str, list[str], dict[str, bytes]]:
    """The parts of an answer, each as it should be. Raises Ended if one is not."""
    try:
        header = json.loads(head)
        word, text, names, sizes = (header[key] for key in ("word", "text", "names", "arrays"))
        files, start = {}, 0
        for name, size in sizes:
            if name not in shapes or type(size) is not int or size < 0:
                raise ValueError
            files[name] = body[start : start + size]
            start += size
        if word not in WORDS or type(text) is not str or not all(type(name) is str for name in names) or start != len(body):
            raise ValueError
    except (ValueError, KeyError, TypeError, RecursionError):
        raise Ended(DISTURBED) from None
    return word, text, names, files
