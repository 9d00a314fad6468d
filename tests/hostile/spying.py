"""Code that looks for answers or writes where it must not. Each prints LEAK when it succeeds."""

from __future__ import annotations

from tests.hostile.kit import NOTHING, ROOT, Case, case, notebook

FRAMES = """
import sys
frame = sys._getframe()
while frame:
    for name, value in list(frame.f_locals.items()) + list(frame.f_globals.items()):
        if type(value).__name__ in ("AnswerKey", "KeyRow", "KeyCase", "Exercise", "Report"): print("LEAK",
        name)
    frame = frame.f_back
"""

OBJECTS = """
import gc
for thing in gc.get_objects():
    if type(thing).__name__ in ("AnswerKey", "KeyRow", "KeyCase", "Exercise", "Report", "Gradebook"):
        print("LEAK", type(thing))
"""

PROCESSES = """
import os
for pid in filter(str.isdigit, os.listdir("/proc")):
    if int(pid) != os.getpid(): print("LEAK process", pid)
for pid in range(2, 400):
    try: status = open(f"/proc/{pid}/status").read()
    except OSError: continue
    own_thread = f"Tgid:\\t{os.getpid()}\\n" in status
    if not own_thread: print("LEAK process", pid)
try:
    os.kill(os.getppid(), 0)
    if os.getppid(): print("LEAK parent", os.getppid())
except OSError: pass
for number in range(4, 64):
    try: link = os.readlink(f"/proc/self/fd/{number}")
    except OSError: continue
    if "scratch" not in link and "/proc" not in link: print("LEAK descriptor", number, link)
"""

ENVIRONMENT = """
import os
for name, value in os.environ.items():
    if any(word in (name + value).upper() for word in ("NBGRADER", "SECRET", "TOKEN", "GRADEBOOK",
    "TRANSFORMER_LAB_ROOT")):
        print("LEAK", name, value)
if any("grade(" in cell for cell in In[:-1]): print("LEAK hidden test")
"""

FILES = f"""
import os, re
packages = r"/(scratch|tmp|dev|usr/lib|usr/lib64|usr/share|lib|lib64|etc|jail)/"
allowed = re.compile(packages)
skipped = ("lib", "packages", "fonts", "zoneinfo")  # where packages are installed
for folder, folders, files in os.walk("/"):
    if folder == "/": folders.remove("proc")
    folders[:] = [name for name in folders if name not in skipped]
    for name in files:
        path = os.path.join(folder, name)
        if not allowed.match(path): print("LEAK file", path)
        if name in ("gradebook.db", "judge.py", "keys.py", "nbgrader_config.py"): print("LEAK file", path)
for path in ({str(ROOT / "grader")!r}, {str(ROOT / "solutions")!r}):
    if os.path.exists(path): print("LEAK course root", path)
shown = sorted(os.listdir("/jail"))
if shown != ["course", "inside", "packages", "python"]: print("LEAK", shown)
if os.listdir("/jail/course") != ["transformer_lab"]: print("LEAK", os.listdir("/jail/course"))
try:
    import grader
    print("LEAK import grader")
except ImportError: pass
"""

NETWORK = """
import socket
for address in (("127.0.0.1", 22), ("8.8.8.8", 53), ("10.0.2.2", 80)):
    try:
        socket.create_connection(address, timeout=1)
        print("LEAK connected", address)
    except OSError: pass
for name in ("example.com", "localhost.localdomain"):
    try: print("LEAK resolved", socket.gethostbyname(name))
    except OSError: pass
for kind in (socket.AF_INET, socket.AF_INET6, socket.AF_NETLINK, socket.AF_PACKET):
    try:
        s = socket.socket(kind, socket.SOCK_RAW if kind == socket.AF_PACKET else socket.SOCK_DGRAM)
        s.sendto(b"leak", ("8.8.8.8", 53))
        print("LEAK sent", kind)
    except (OSError, TypeError): pass
"""

WRITES = f"""
import os, sqlite3, sys
places = [{str(ROOT / "gradebook.db")!r}, {str(ROOT / "sitecustomize.py")!r},
          "/usr/lib/sitecustomize.py", "/etc/ld.so.preload",
          "/jail/inside/worker.py", "/jail/course/transformer_lab/__init__.py", "/dev/null/x",
          "/proc/sys/kernel/core_pattern", *[os.path.join(p, "sitecustomize.py") for p in sys.path if p]]
for place in places:
    try:
        with open(place, "a") as file: file.write("import os")
        print("LEAK wrote", place)
    except OSError: pass
os.makedirs(os.path.expanduser("~/.ipython/profile_default/startup"), exist_ok=True)
with open(os.path.expanduser("~/.ipython/profile_default/startup/00.py"), "w") as file:
    file.write("print('LEAK startup')")
for name in ("torch.py", "sitecustomize.py", "transformer_lab.py", "worker.py"):
    with open(name, "w") as file: file.write("print('LEAK poisoned'); raise SystemExit(3)")
    with open("/tmp/" + name, "w") as file: file.write("print('LEAK poisoned')")
"""

LEFT_BEHIND = """
import os
for folder in ("/tmp", "/dev/shm", os.path.expanduser("~/.ipython/profile_default/startup"), os.getcwd()):
    if os.path.isdir(folder):
        for name in os.listdir(folder):
            if name.endswith(".py"): print("LEAK left behind", folder, name)
import torch
print(torch.__version__)
"""

ESCAPES = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
for name, call in {
    "unshare": lambda: libc.unshare(0x10000000), "mount": lambda: libc.mount(b"none", b"/scratch", b"tmpfs",
    0, None), "chroot": lambda: libc.chroot(b"/scratch"), "setuid": lambda: libc.setuid(0), "setgid": lambda:
    libc.setgid(0), "ptrace": lambda: libc.ptrace(16, 1, 0, 0), "memfd": lambda: libc.memfd_create(b"x", 0),
    "umount": lambda: libc.umount2(b"/proc", 2), "shmget": lambda: libc.shmget(0, 1 << 20, 0o1600),
    "sethostname": lambda: libc.sethostname(b"x", 1), "bpf": lambda: libc.syscall(321, 0, 0, 0), "keyctl":
    lambda: libc.syscall(250, 0, -3, 0), "io_uring": lambda: libc.syscall(425, 8, 0), "raise limits": lambda:
    libc.setrlimit(9, (ctypes.c_ulong * 2)(1 << 40, 1 << 40)), "nice": lambda: libc.setpriority(0, 0, -5),
}.items():
    if call() >= 0: print("LEAK", name)
status = open("/proc/self/status").read()
if "CapEff:\\t0000000000000000" not in status or "NoNewPrivs:\\t1" not in status: print("LEAK rights")
"""


def cases() -> list[Case]:
    tries = {
        "frames": FRAMES,
        "objects": OBJECTS,
        "processes": PROCESSES,
        "environment": ENVIRONMENT,
        "files": FILES,
        "network": NETWORK,
        "writes": WRITES,
        "left-behind": LEFT_BEHIND,
        "escapes": ESCAPES,
    }
    spies = [
        case(f"spy-{name}", notebook({}, last=source + '\nprint("looked")'), NOTHING)
        for name, source in tries.items()
    ]
    # the same while a case is being judged: the judge's data is nearest then
    while_judged = "def position_similarity(d_model, offsets):\n" + "".join(
        f"    {line}\n" for source in (FRAMES, OBJECTS, PROCESSES) for line in source.strip().splitlines()
    )
    return [
        *spies,
        case("spy-while-judged", notebook({"2.5": while_judged + "    return offsets\n"}), NOTHING),
    ]
