"""Asks a JavaScript program beside it, which runs on: one line of JSON for each call, arrays as base64 of float32."""

import base64
import json
import subprocess
from pathlib import Path

import numpy as np


def sent(array):
    """An array as the program takes it: {shape, data}."""
    return {"shape": array.shape, "data": base64.b64encode(np.float32(array).tobytes()).decode()}


class Program:
    """The program in the file `name`; call it with arrays and numbers by name, and it returns an array."""

    def __init__(self, name):
        command = ["node", Path(__file__).with_name(name)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8")

    def __call__(self, **given):
        line = {name: sent(value) if isinstance(value, np.ndarray) else value for name, value in given.items()}
        print(json.dumps(line), file=self.process.stdin, flush=True)
        made = json.loads(self.process.stdout.readline())
        if "error" in made:
            raise RuntimeError(made["error"])
        return np.frombuffer(base64.b64decode(made["data"]), np.float32).reshape(made["shape"])
