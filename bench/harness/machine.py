"""The machine a figure was taken on: what it is, how busy it is, which CPUs to use.

A figure without its machine and commit is not a figure: `conditions` goes into
every report.
"""

import datetime
import os
import platform
import subprocess
import time
from pathlib import Path

from . import program
from .program import Failure

# Of one CPU. Kernel threads and the like stay below it on an idle machine.
QUIET_BUSY_CPUS = 0.15


def conditions():
    """Machine, program, commit, date, and how busy the machine is with other work."""
    facts = {
        "machine": program.call_json("doctor"),
        "program": program.call("--version").strip(),
        "commit": commit(),
        "system": f"{platform.system()} {platform.machine()}, Python {platform.python_version()}",
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
        "busy_cpus": busy_cpus(),
    }
    return facts


def commit():
    """The checkout's commit, with `+` if tracked files differ from it; `unknown` without git.

    A program named in $TUNESMITH may have been built from another.
    """

    def git(*args):
        done = subprocess.run(
            ["git", "-C", program.ROOT, *args],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        return done.stdout.strip() if done.returncode == 0 else None

    try:
        name = git("rev-parse", "--short=12", "HEAD")
        changed = git("status", "--porcelain", "--untracked-files=no")
    except OSError:
        return "unknown"
    return "unknown" if name is None else name + ("+" if changed else "")


def busy_cpus(seconds=2.0):
    """CPUs at work over a moment in which this process sleeps; None if not known.

    Not the load average: that remembers the benchmark's own tuning.
    """
    before = cpu_times()
    if before is None:
        return None
    time.sleep(seconds)
    busy, total = (after - b for after, b in zip(cpu_times(), before))
    return round(busy / max(total, 1) * (os.cpu_count() or 1), 2)


def cpu_times():
    """Busy and all ticks of all CPUs since the machine started."""
    try:
        line = Path("/proc/stat").read_text().splitlines()[0]
    except OSError:
        return None
    # user nice system idle iowait irq softirq steal; what follows is in user already.
    ticks = [int(t) for t in line.split()[1:9]]
    return sum(ticks) - ticks[3] - ticks[4], sum(ticks)


def stolen(cpus):
    """Ticks that the host of this virtual machine took from CPUs, and all of theirs, since the start.

    Of all CPUs if `cpus` is None; None where that is not known.
    """
    try:
        return stolen_ticks(Path("/proc/stat").read_text(), cpus)
    except OSError:
        return None


def stolen_ticks(text, cpus):
    """The same from the text of /proc/stat."""
    names = {"cpu"} if cpus is None else {f"cpu{c}" for c in cpus}
    lines = [line.split() for line in text.splitlines()]
    ticks = [[int(t) for t in line[1:9]] for line in lines if line and line[0] in names]
    return sum(t[7] for t in ticks), sum(map(sum, ticks))


def huge_pages():
    """Whether the system gives huge pages to who asks: `always`, `madvise`, `never` or `unknown`."""
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return "unknown"
    return text.partition("[")[2].partition("]")[0] or "unknown"


def cpus_for(threads):
    """The CPUs for a process of so many threads: different cores first, the last ones.

    None where the system cannot keep a process to CPUs.
    """
    if not hasattr(os, "sched_getaffinity"):
        return None
    allowed = sorted(os.sched_getaffinity(0))
    if threads > len(allowed):
        raise Failure(f"{threads} threads, but only {len(allowed)} CPUs are allowed here")
    return choose_cpus(threads, allowed, siblings)


def choose_cpus(threads, allowed, siblings_of):
    """`threads` of the allowed CPUs, one a core while there are cores left."""
    first, rest, cores = [], [], set()
    # Interrupts favour low numbers.
    for cpu in reversed(allowed):
        core = siblings_of(cpu)
        (rest if core in cores else first).append(cpu)
        cores.add(core)
    return set((first + rest)[:threads])


def siblings(cpu):
    """What names the core of a CPU; the CPU itself where that is not known."""
    path = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return path.read_text().strip()
    except OSError:
        return str(cpu)
