"""A Slurm cluster of one node for a test: its own daemons, ports, keys and folder, gone afterwards.

Nothing outside of the folder is touched, so several of them can run side by side.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from machine import SLURM, search

TOOLS = (*SLURM, "munged", "setpriv")

CONF = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={control_port}
SlurmdPort={node_port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits until its old credential has expired: 120 s if nothing is said, 5 at least.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SchedulerType=sched/builtin
SchedulerParameters=sched_interval=1,sched_min_interval=0,batch_sched_delay=0
SlurmdParameters=config_overrides
AccountingStorageType=accounting_storage/none
JobAcctGatherType=jobacct_gather/none
JobRequeue=1
KillWait=1
InactiveLimit=0
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} RealMemory=4000 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


@contextmanager
def cluster(cpus: int = 2) -> Iterator[dict[str, str]]:
    """Environment variables with which the commands of Slurm find the cluster."""
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))  # short: the path of a socket has 107 letters
    variables = {"SLURM_CONF": str(folder / "slurm.conf"), "PATH": search()}
    environment = {**_outside_of_slurm(), **variables}
    daemons: list[subprocess.Popen[bytes]] = []
    try:
        _configure(folder, cpus)
        munge = folder / "munge"
        files = ("key-file", "socket", "pid-file", "log-file", "seed-file")
        places = [f"--{option}={munge / option.partition('-')[0]}" for option in files]
        command = ["munged", "--foreground", "--force", "--num-threads=1", *places]
        daemons.append(_start(folder, environment, command))
        _until(lambda: (munge / "socket").exists(), "munged does not start", folder)
        daemons.append(_start(folder, environment, ["slurmctld", "-D"]))
        daemons.append(_start(folder, environment, ["slurmd", "-D"]))
        look = ["sinfo", "--noheader", "--format=%T"]
        _until(lambda: _ask(environment, look) == "idle", "the node does not come up", folder)
        yield variables
    finally:
        _stop(daemons, environment)
        shutil.rmtree(folder, ignore_errors=True)


def _configure(folder: Path, cpus: int) -> None:
    folder.chmod(0o755)
    for name in ("munge", "state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge" / "key"
    key.touch(mode=0o600)
    key.write_bytes(os.urandom(64))
    with socket.socket() as one, socket.socket() as two:
        one.bind(("127.0.0.1", 0))
        two.bind(("127.0.0.1", 0))
        ports = one.getsockname()[1], two.getsockname()[1]
    host = socket.gethostname().partition(".")[0]
    text = CONF.format(
        folder=folder, host=host, control_port=ports[0], node_port=ports[1], cpus=cpus
    )
    (folder / "slurm.conf").write_text(text)


def _start(
    folder: Path, environment: dict[str, str], command: Sequence[str]
) -> subprocess.Popen[bytes]:
    """A daemon that also ends when this process is killed."""
    with (folder / f"{command[0]}.log").open("wb") as log:
        return subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", *command],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,  # Ctrl-C is for the test, which then stops them in order
        )


def _stop(daemons: Sequence[subprocess.Popen[bytes]], environment: dict[str, str]) -> None:
    """Jobs first, then the daemons, then whatever is left of either."""
    if len(daemons) == 3 and daemons[1].poll() is None:
        _ask(environment, ["scancel", "--me"])
        until = time.monotonic() + 10
        while time.monotonic() < until and _ask(environment, ["squeue", "--noheader"]):
            time.sleep(0.1)
    for daemon in reversed(daemons):
        daemon.terminate()
        try:
            daemon.wait(5)
        except subprocess.TimeoutExpired:
            daemon.kill()
            daemon.wait()
    mark = f"SLURM_CONF={environment['SLURM_CONF']}".encode()
    for path in Path("/proc").glob("[0-9]*/environ"):
        pid = int(path.parent.name)
        with suppress(OSError):
            # Not the test's own helpers, which share its session.
            if mark in path.read_bytes().split(b"\0") and os.getsid(pid) != os.getsid(0):
                os.kill(pid, signal.SIGKILL)


def _outside_of_slurm() -> dict[str, str]:
    return {key: value for key, value in os.environ.items() if not key.startswith("SLURM")}


def _ask(environment: dict[str, str], command: Sequence[str]) -> str:
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=30, check=False
    )
    return done.stdout.strip()


def _until(condition, complaint: str, folder: Path) -> None:
    end = time.monotonic() + 30
    while not condition():
        if time.monotonic() > end:
            logs = [f"{path.name}:\n{path.read_text()[-2000:]}" for path in folder.glob("*.log")]
            raise RuntimeError("\n".join([complaint, *logs]))
        time.sleep(0.05)
