"""Code that dies, hangs, or takes all there is. It costs its own exercise; the rest keeps its marks."""

from __future__ import annotations

from tests.hostile.kit import Case, case, changed, notebook, right_answers

DAEMON_NAME = "tl-left-over"  # /proc/*/comm of what must not outlive its submission

DEATHS = {
    "os-exit": "import os; os._exit(0)",
    "segfault": "import ctypes; ctypes.string_at(0)",
    "kill-9-group": "import os, signal; os.kill(0, signal.SIGKILL); import ctypes; ctypes.string_at(1)",
    "abort": "import os; os.abort()",
    "endless-loop": "while True: pass",
    "swallows-interrupt": """
while True:
    try:
        while True: pass
    except BaseException: pass
""",
    "signals-ignored": """
import signal, time
for number in range(1, 32):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
time.sleep(1000)
""",
    "long-c-call": "sum(range(10 ** 13))",
    "regex-blow-up": "import re; re.match(r'(a+)+$', 'a' * 64 + 'b')",
    "deadlock": "import threading; lock = threading.Lock(); lock.acquire(); lock.acquire()",
    "stack-overflow": """
import sys
sys.setrecursionlimit(10 ** 9)
def f(): return f()
import ctypes
ctypes.pythonapi.Py_SetRecursionLimit(10 ** 9)
import json
class R:
    def __repr__(self): return repr(self)
repr(R())
""",
    "closes-everything": "import os; os.closerange(0, 1 << 16)",
    "memory-by-children": """
import os, time
for _ in range(6):
    if os.fork() == 0:
        block = bytearray(150 << 20)
        for i in range(0, len(block), 4096): block[i] = 1
        time.sleep(1000)
time.sleep(1000)
""",
}

# these end with an error or with nothing at all, in the process that goes on
SURVIVED = {
    "sys-exit": "import sys; sys.exit(1)",
    "input": "input('your name: ')",
    "50-GB": "import torch; x = torch.ones(50 << 28)",
    "50-GB-bytes": "x = bytearray(50 << 30)",
    "fork-bomb": """
import os, time
for _ in range(7):
    try: os.fork()
    except OSError: break
if os.getpid() != 1:
    while True:
        try: os.fork()
        except OSError: time.sleep(0.2)
""",
    "thread-bomb": """
import threading, time
try:
    for _ in range(100_000): threading.Thread(target=time.sleep, args=(1000,), daemon=True).start()
except RuntimeError: print("no more threads")
""",
    "full-disk": """
try:
    with open("big", "wb") as file:
        for _ in range(10_000): file.write(b"x" * (1 << 20))
except OSError as error: print(error)
try:
    for i in range(1_000_000): open(f"f{i}", "w").close()
except OSError as error: print(error)
""",
    "daemon": f"""
import ctypes, os, time
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        ctypes.CDLL(None).prctl(15, b"{DAEMON_NAME}", 0, 0, 0)
        time.sleep(1000)
    os._exit(0)
""",
    "60-MB-line": "print('x' * 60_000_000)",
    "3-M-lines": "print('x\\n' * 3_000_000)",
    "60-MB-below-python": "import os\nfor _ in range(60): os.write(1, b'y' * 1_000_000)",
    "100-pictures": """
from IPython.display import Image, display
picture = b"\\x89PNG\\r\\n\\x1a\\n" + bytes(range(256)) * 2000
for _ in range(100): display(Image(picture))
""",
    "million-open-files": """
kept = []
try:
    while True: kept.append(open("/dev/null"))
except OSError as error: print(error)
del kept
""",
    "stops-its-parent": """
import os, signal
os.kill(os.getppid(), signal.SIGSTOP)
if os.fork() == 0:
    os.kill(os.getppid(), signal.SIGSTOP); os._exit(0)
os.wait()
""",
    "stops-everyone": """
import os, signal
for n in range(1, 300):
    try: os.kill(n, signal.SIGSTOP)
    except OSError: pass
""",
}


def cases() -> list[Case]:
    answer = right_answers()["2.5"]
    found = []
    for name, source in DEATHS.items():
        # while its cell runs: the definition is lost with the process
        found.append(case(f"die-{name}", notebook(changed(_2_5=f"{answer}\n{source}")), {"2.5": 0.0}))
    for name in ("os-exit", "segfault", "endless-loop"):
        lines = "".join(f"    {line}\n" for line in DEATHS[name].strip().splitlines())
        body = f"def position_similarity(d_model, offsets):\n{lines}"
        found.append(case(f"die-when-called-{name}", notebook(changed(_2_5=body)), {"2.5": 0.0}, note="2.5"))
    # in a cell of the learner's own nothing is lost but that cell
    found.append(
        case("die-in-own-cell", notebook(after_2_5="import os; os._exit(1)"), note="ended the process")
    )
    everywhere = {number: f"{text}\nimport os; os._exit(1)" for number, text in right_answers().items()}
    found.append(case("die-everywhere", notebook(everywhere), dict.fromkeys(everywhere, 0.0)))
    for name, source in SURVIVED.items():
        note = "processes running; they were ended" if name == "fork-bomb" else ""
        found.append(case(f"load-{name}", notebook(changed(_2_5=f"{answer}\n{source}")), note=note))
    return found
