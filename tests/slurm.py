"""A Slurm of one node on this machine, for as long as a test needs it: munged, slurmctld and slurmd, with all they write in one folder.

With accounting also slurmdbd and a MariaDB, which asks nobody for a password and listens on this machine alone.
"""

import getpass
import os
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

PATH = os.pathsep.join([os.environ["PATH"], "/usr/sbin", "/sbin"])
SERVICES = ("munged", "slurmctld", "slurmd")
ACCOUNTING = ("mariadbd", "slurmdbd")
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
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerParameters=batch_sched_delay=0,sched_interval=1,sched_min_interval=0
SlurmdParameters=config_overrides
KillWait=1
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 RealMemory=64000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
ACCOUNTS = """
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort={ports[2]}
AccountingStoragePass={folder}/munge/socket
"""
DATABASE = """
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
DbdHost={host}
DbdAddr=127.0.0.1
DbdPort={ports[2]}
SlurmUser={user}
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort={ports[3]}
StorageUser={user}
PidFile={folder}/slurmdbd.pid
LogFile={folder}/slurmdbd.log
"""


def missing(*more: str) -> str:
    """The programs that this machine lacks, of those that are always needed and of `more`; or nothing."""
    return ", ".join(name for name in (*SERVICES, *COMMANDS, *more) if not shutil.which(name, path=PATH))


def free_ports(count: int) -> list[int]:
    with ExitStack() as stack:
        taken = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in taken:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in taken]


@contextmanager
def cluster(folder: Path, accounting: bool, settings: str = "") -> Iterator[dict[str, str]]:
    """The variables with which commands find a Slurm that runs in `folder`, with accounting or without.

    settings: more lines of slurm.conf.
    """
    for name in ("munge", "state", "spool", "database", "bin"):
        (folder / name).mkdir(parents=True, mode=0o711)
    (folder / "munge" / "key").write_bytes(os.urandom(128))
    (folder / "munge" / "key").chmod(0o600)
    ports = free_ports(4)
    told = {"folder": folder, "host": socket.gethostname().split(".")[0], "ports": ports, "user": getpass.getuser()}
    (folder / "slurm.conf").write_text((CONFIGURATION + ACCOUNTS * accounting + settings).format(**told), "utf-8")
    if int(re.findall(r"\d+", asked({"PATH": PATH}, "slurmd", "-V"))[0]) >= 23:  # 22.05 knows no such word
        (folder / "cgroup.conf").write_text("CgroupPlugin=disabled\n", "utf-8")  # slurmd wants cgroups, which only root may make
    (folder / "slurmdbd.conf").write_text(DATABASE.format(**told), "utf-8")
    (folder / "slurmdbd.conf").chmod(0o600)
    for name in COMMANDS:  # jobs lose SLURM_CONF on their way, for the executor drops variables of Slurm's own; each command sets it again
        (folder / "bin" / name).write_text(f'#!/bin/sh\nSLURM_CONF={folder / "slurm.conf"} exec {shutil.which(name)} "$@"\n', "utf-8")
        (folder / "bin" / name).chmod(0o755)
    env = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": f"{folder / 'bin'}:{PATH}"}
    munged = ["munged", "--foreground", "--force"]
    munged += [f"--{key}={folder / 'munge' / name}" for key, name in (("key-file", "key"), ("socket", "socket"), ("seed-file", "seed"))]
    munged += [f"--{key}={folder / 'munge' / name}" for key, name in (("pid-file", "pid"), ("log-file", "log"))]
    mariadbd = [
        "mariadbd",
        "--no-defaults",
        "--skip-grant-tables",
        "--bind-address=127.0.0.1",
        f"--port={ports[3]}",
        f"--user={told['user']}",
    ]
    mariadbd += [f"--{key}={folder / 'database' / name}" for key, name in (("datadir", ""), ("socket", "socket"), ("pid-file", "pid"))]
    started: list[subprocess.Popen] = []

    def begin(*command: str) -> None:
        with open(folder / f"{command[0]}.said", "wb") as said:
            start = {"stdin": subprocess.DEVNULL, "stdout": said, "stderr": said, "start_new_session": True}
            started.append(subprocess.Popen(command, cwd=folder, env={**os.environ, **env}, **start))

    def until(answers: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not answers():
            if time.monotonic() > deadline:
                raise TimeoutError("\n".join(path.read_text("utf-8", "replace")[-2000:] for path in sorted(folder.glob("*.said"))))
            time.sleep(0.1)

    try:
        begin(*munged)
        if accounting:
            begin(*mariadbd)
            until(lambda: listens(ports[3]))
            begin("slurmdbd", "-D")
            until(lambda: listens(ports[2]))
        begin("slurmctld", "-D")
        begin("slurmd", "-D", "-N", told["host"])
        until(lambda: "idle" in asked(env, "sinfo", "--noheader", "--format=%T"))
        yield env
    finally:
        for process in reversed(started):  # slurmd leaves the jobs that run to themselves, so they are cancelled before it ends
            if process.args[0] == "slurmd":
                asked(env, "scancel", "--user", told["user"])
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()


def listens(port: int) -> bool:
    """Whether something answers at this port."""
    with socket.socket() as tried:
        return tried.connect_ex(("127.0.0.1", port)) == 0


def asked(env: dict[str, str], *command: str) -> str:
    """What a command of Slurm's says."""
    return subprocess.run(command, env={**os.environ, **env}, capture_output=True, encoding="utf-8").stdout
