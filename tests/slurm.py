"""A Slurm of one node on this machine, for as long as a test needs it: munged, slurmctld and slurmd, with all they write in one folder."""

import getpass
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
SERVICES = ("munged", "slurmctld", "slurmd")
COMMANDS = ("sacct", "sacctmgr", "sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
CONFIGURATION = """
ClusterName=here
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
KillWait=1
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=64000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
{more}
"""


def missing() -> str:
    """The programs that this machine lacks, or nothing."""
    return ", ".join(name for name in SERVICES + COMMANDS if not shutil.which(name, path=PATH))


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


@contextmanager
def cluster(folder: Path, more: str = "") -> Iterator[dict[str, str]]:
    """The variables with which commands find a Slurm that runs in `folder`, without accounting unless `more` lines of slurm.conf say so."""
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir(parents=True, mode=0o711)
    (folder / "munge" / "key").write_bytes(os.urandom(128))
    (folder / "munge" / "key").chmod(0o600)
    host = socket.gethostname().split(".")[0]
    text = CONFIGURATION.format(folder=folder, host=host, ports=free_ports(2), user=getpass.getuser(), more=more)
    (folder / "slurm.conf").write_text(text, "utf-8")
    (folder / "bin").mkdir()
    for name in COMMANDS:  # jobs lose SLURM_CONF on their way, for the executor drops variables of Slurm's own; each command sets it again
        (folder / "bin" / name).write_text(f'#!/bin/sh\nSLURM_CONF={folder / "slurm.conf"} exec {shutil.which(name)} "$@"\n', "utf-8")
        (folder / "bin" / name).chmod(0o755)
    env = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}:{PATH}"}
    munged = ["munged", "--foreground", "--force"]
    munged += [f"--{key}={folder / 'munge' / name}" for key, name in (("key-file", "key"), ("socket", "socket"), ("seed-file", "seed"))]
    munged += [f"--{key}={folder / 'munge' / name}" for key, name in (("pid-file", "pid"), ("log-file", "log"))]
    started = []
    try:
        for command in (munged, ["slurmctld", "-D"], ["slurmd", "-D", "-N", host]):
            with open(folder / f"{command[0]}.said", "wb") as said:
                start = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said, "start_new_session": True}
                started.append(subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, **start))
        deadline = time.monotonic() + 30
        while "idle" not in asked(env, "sinfo", "--noheader", "--format=%T"):
            if time.monotonic() > deadline:
                raise TimeoutError("\n".join(path.read_text("utf-8", "replace")[-2000:] for path in sorted(folder.glob("*.said"))))
            time.sleep(0.1)
        yield env
    finally:
        for process in reversed(started):  # slurmd leaves the jobs that run to themselves, so they are cancelled before it ends
            if process.args[0] == "slurmd":
                asked(env, "scancel", "--user", getpass.getuser())
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def asked(env: dict[str, str], *command: str) -> str:
    """What a command of Slurm's says."""
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, encoding="utf-8").stdout
