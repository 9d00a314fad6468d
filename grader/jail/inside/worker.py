"""The warm process of a jail, and the processes forked from it that run submissions.

The warm process imports torch, IPython and transformer_lab once and then only forks: it never runs a line of
a learner's code. Each submission gets a process with user, process, network, IPC, host-name and mount
namespaces of its own, a scratch folder of its own, and no descriptor but its own socket. It is number 1 of
its process namespace, so all it ever started dies with it, and the warm process has no number there: it
cannot be signalled, traced or even named.

Started by launcher.py: `worker.py CONTROL_FD CONFIG`.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import signal
import socket
import sys

sys.path[:0] = [os.path.dirname(os.path.abspath(__file__))]

import namespaces as ns  # noqa: E402  (needs the line above)
import seccomp  # noqa: E402
from channel import Channel, ChannelError, receive_descriptor  # noqa: E402


def warm_up(config: dict) -> None:
    """Import what notebooks import, with one thread everywhere: threads do not survive a fork."""
    sys.path[1:1] = config["path"]
    sys.path.append("")  # a notebook may import a file that it wrote itself
    sys.dont_write_bytecode = True
    import gc
    import site

    site.setquit()
    site.sethelper()
    if config["isolated"]:
        _mount_scratch(config["scratch"], config["scratch_bytes"], 0)
    _make_folders(config["scratch"])
    import shell
    import torch

    torch.set_num_threads(1)
    torch.set_num_interop_threads(1)
    the_shell = shell.new_shell()
    for name in [*config["imports"], *_course_modules()]:
        with contextlib.suppress(ImportError):  # a notebook that needs it will say so itself
            __import__(name)
    _warm_shell(the_shell)
    gc.collect()
    gc.freeze()  # the collector would touch, and so copy, every page in each fork


def _course_modules() -> list[str]:
    import pkgutil

    import transformer_lab

    found = pkgutil.walk_packages(transformer_lab.__path__, "transformer_lab.", onerror=lambda _name: None)
    return [module.name for module in found if not module.name.endswith((".lab", "__main__"))]


def _warm_shell(shell) -> None:
    """Run one cell, so that what IPython and matplotlib build on first use is built before the fork."""
    shell.run(
        "import matplotlib.pyplot\nmatplotlib.pyplot.figure(); matplotlib.pyplot.close('all')", 1000, -1
    )
    shell.reset(new_session=True)
    shell.execution_count = 1


def _mount_scratch(folder: str, size: int, owner: int) -> None:
    options = f"size={size},nr_inodes=4096,mode=700,uid={owner},gid={owner}"
    ns.mount("tmpfs", folder, "tmpfs", ns.MS_NOSUID | ns.MS_NODEV, options)


def _make_folders(scratch: str) -> None:
    for folder in ("home", "tmp", "work"):
        os.makedirs(f"{scratch}/{folder}", exist_ok=True)


def serve(control: socket.socket, config: dict) -> None:
    """Fork one process for each socket that comes in on `control`, until it closes."""
    while True:
        poll = select.poll()
        poll.register(control, select.POLLIN)
        if poll.poll(500):
            message, descriptor = receive_descriptor(control)
            if descriptor is None:
                return
            _start(json.loads(message), descriptor, control, config)
        _reap()


def _reap() -> None:
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _start(limits: dict, descriptor: int, control: socket.socket, config: dict) -> None:
    """Fork twice: the first enters new namespaces, the second is number 1 of the new process namespace."""
    between = os.fork()
    if between == 0:
        control.close()
        try:
            if config["isolated"]:
                ns.unshare(ns.EVERY_NAMESPACE)
                ns.write_id_maps("self", config["inside_id"], 0, 0)
            if os.fork() == 0:
                _become_learner(limits, descriptor, config)
        except BaseException as error:
            with contextlib.suppress(OSError):
                os.write(2, f"jail: {type(error).__name__}: {error}\n".encode())
            os._exit(98)
        os._exit(0)
    os.close(descriptor)
    os.waitpid(between, 0)


def _become_learner(limits: dict, descriptor: int, config: dict) -> None:
    """Shut every door, then run what the socket asks for. Never returns."""
    os.setsid()
    session = descriptor if descriptor == 3 else os.dup2(descriptor, 3, inheritable=False)
    os.closerange(4, min(resource.getrlimit(resource.RLIMIT_NOFILE)[0], 1 << 16))
    null = os.open("/dev/null", os.O_RDWR)
    for number in (0, 1):
        os.dup2(null, number)
    if config["isolated"]:
        _enter_cell(limits, config)
    else:
        os.chdir(f"{config['scratch']}/work")
        _limit_resources(limits, {"RLIMIT_NPROC"})  # counts all of the user's processes here
    os.dup2(null, 2)  # until here a failure was the jail's, and told
    os.close(null)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a file that grows too large is an OSError, not a death
    os.nice(5)
    channel = Channel(socket.socket(fileno=session))
    try:
        _run_submission(channel, limits)
    except ChannelError:
        pass  # the grader hung up
    finally:
        os._exit(0)


def _enter_cell(limits: dict, config: dict) -> None:
    """In the new namespaces: an own scratch folder and process list, limits, and no rights at all."""
    _mount_scratch(config["scratch"], limits["scratch_bytes"], config["inside_id"])
    _make_folders(config["scratch"])
    ns.mount("proc", "/proc", "proc", ns.MS_NOSUID | ns.MS_NODEV | ns.MS_NOEXEC)
    socket.sethostname("jail")
    os.chdir(f"{config['scratch']}/work")
    _limit_resources(limits, set())
    ns.drop_capabilities()
    ns.no_new_privileges()
    if limits["seccomp"]:
        seccomp.install()


def _limit_resources(limits: dict, without: set[str]) -> None:
    """Memory is limited beyond what the warm process already has; both kinds are private to this process."""
    mapped, private = _memory_now()
    for name, value in {
        "RLIMIT_AS": mapped + limits["memory_bytes"],
        "RLIMIT_DATA": private + limits["memory_bytes"],
        "RLIMIT_NPROC": limits["processes"],
        "RLIMIT_NOFILE": limits["open_files"],
        "RLIMIT_FSIZE": limits["scratch_bytes"],
        "RLIMIT_CPU": limits["cpu_seconds"],
        "RLIMIT_CORE": 0,
        "RLIMIT_MEMLOCK": 0,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_SIGPENDING": 1024,
    }.items():
        if hasattr(resource, name) and name not in without:
            resource.setrlimit(getattr(resource, name), (value, value))


def _memory_now() -> tuple[int, int]:
    """Return the bytes that this process has mapped, and those of them that are private and writable."""
    try:
        with open("/proc/self/statm") as file:
            pages = [int(number) * resource.getpagesize() for number in file.read().split()]
    except OSError:  # no /proc on this platform: room for the libraries, then
        return 8 << 30, 1 << 30
    return pages[0], pages[5]


def _run_submission(channel: Channel, limits: dict) -> None:
    channel.send({"ready": True, "pid": os.getpid()})
    if "shell" not in sys.modules:  # a jail that was never warmed up
        channel.receive()
    import shell as shell_module

    from transformer_lab.checking.probes import core as probe
    from transformer_lab.checking.stored import wire

    shell = shell_module.LearnerShell.instance()
    spill = shell_module.take_over_output(shell)
    while True:
        request, blob = channel.receive()
        number = request["number"]
        if request["do"] == "cell":
            answer = shell.run(request["source"], limits["cell_output_bytes"], spill)
            channel.send(answer | {"number": number})
        elif request["do"] == "probe":
            seen = _observe(shell, request["symbol"], wire.unpack(blob), probe)
            channel.send({"number": number}, _packed(seen, wire, probe))
        elif request["do"] == "sweep":
            channel.send({"number": number, "ended": _end_leftovers()})
        else:
            raise ChannelError(f"unknown request {request['do']!r}")


def _end_leftovers() -> bool:
    """End every process but this one. Only where this is number 1, so that -1 means this submission alone."""
    if os.getpid() != 1:
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(-1, signal.SIGKILL)  # the kernel lets no fork slip through between two of them
    with contextlib.suppress(ChildProcessError):
        while True:  # orphans are this process's children: wait until the last is gone
            os.waitpid(-1, 0)
    return True


def _observe(shell, symbol: str, case: dict, probe):
    """Run one case on the learner's symbol, looked up by name now."""
    if symbol not in shell.user_ns:
        text = f"{symbol} is not defined where its check stands."
        return probe.Observation(problem=probe.Problem("missing", text, text))
    return probe.observe(shell.user_ns[symbol], probe.Case(case["probe"], case["inputs"]))


def _packed(seen, wire, probe) -> bytes:
    try:
        return wire.pack(seen.tree())
    except Exception as error:  # odd values from odd code are the learner's problem, told as one
        text = f"Your result could not be read ({type(error).__name__})."
        return wire.pack(probe.Observation(problem=probe.Problem("raised", text, text)).tree())


def main() -> None:
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    config = json.loads(sys.argv[2])
    if config["warm"]:
        warm_up(config)
    control.send(b"warm")
    serve(control, config)


if __name__ == "__main__":
    main()
