"""Peak resident memory of this process since a moment of one's choice."""

import ctypes
import platform
import sys
from pathlib import Path

import psutil


STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def start_peak() -> int:
    """Begin to look for the peak; returns what is resident now, in bytes, without buffers that are free already."""
    if platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)  # else what was freed and kept would count as in use before
    try:
        CLEAR_REFS.write_text("5", encoding="ascii")  # proc(5): resets VmHWM
    except OSError:
        return peak()  # the highest so far: what lies below it cannot be seen
    return psutil.Process().memory_info().rss


def peak() -> int:
    """The highest resident memory in bytes, since `start_peak` where the system can tell, else since the beginning."""
    if STATUS.exists():
        line = next(line for line in STATUS.read_text(encoding="ascii").split("\n") if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    if sys.platform == "win32":
        return psutil.Process().memory_info().peak_wset
    import resource

    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return used if sys.platform == "darwin" else used * 1024
