"""Starts the warm process of a jail: builds its file system, enters its namespaces, gives up all rights.

Run as a script in a fresh, empty Python (`python -I -S launcher.py FD CONFIG`), so nothing of the grader's
memory comes along. CONFIG is JSON: see `grader.jail._configuration`. FD is the socket that the warm process
listens to.

Two steps of namespaces, so that the second cannot undo the first's mounts (the kernel locks mounts that a
less privileged namespace inherits):
1. mounts (with a user namespace, when not root): the new root is built and the old one let go of;
2. user, processes, network, IPC, host name, mounts: the warm process is number 1 of its own process
   namespace. As root, step 2's user namespace maps to a user id that owns nothing, so nothing in the jail
   runs as root.
"""

import json
import os
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

import namespaces as ns

_DEVICES = ("null", "zero", "full", "random", "urandom")


def build_root(root: str, visible: list[list[str]], hidden: list[str], uid: int) -> None:
    """Mount a small read-only tree at `root` in which only `visible` ([source, target] pairs) can be seen.

    hidden: folders below a target that are covered by an empty one.
    """
    ns.mount("tmpfs", root, "tmpfs", ns.MS_NOSUID | ns.MS_NODEV, "size=1m,nr_inodes=2048,mode=755")
    for folder in ("proc", "dev", "scratch", "etc"):
        os.mkdir(f"{root}/{folder}")
    for name in _DEVICES:
        _touch(f"{root}/dev/{name}")
        ns.mount(f"/dev/{name}", f"{root}/dev/{name}", None, ns.MS_BIND)
    for name, number in (("stdin", 0), ("stdout", 1), ("stderr", 2)):
        os.symlink(f"/proc/self/fd/{number}", f"{root}/dev/{name}")
    os.symlink("/proc/self/fd", f"{root}/dev/fd")
    os.symlink("/scratch/tmp", f"{root}/tmp")
    os.symlink("/scratch/tmp", f"{root}/dev/shm")
    _write(f"{root}/etc/passwd", f"learner:x:{uid}:{uid}::/scratch/home:/bin/false\n")
    _write(f"{root}/etc/group", f"learner:x:{uid}:\n")
    for source, target in visible:
        _show(source, root + target)
    for target in hidden:
        ns.mount("tmpfs", root + target, "tmpfs", ns.MS_NOSUID | ns.MS_NODEV | ns.MS_RDONLY, "size=4k")
    # the host's /proc stays below for a moment: the kernel wants to see one before it mounts another
    ns.mount("/proc", f"{root}/proc", None, ns.MS_BIND | ns.MS_REC)


def _show(source: str, target: str) -> None:
    if os.path.islink(source):  # /lib -> usr/lib
        if not os.path.lexists(target):
            os.makedirs(os.path.dirname(target), exist_ok=True)
            os.symlink(os.readlink(source), target)
        return
    if os.path.isdir(source):
        os.makedirs(target, exist_ok=True)
    else:
        _touch(target)
    ns.bind_read_only(source, target)


def _touch(path: str) -> None:
    os.makedirs(os.path.dirname(path), exist_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT, 0o644))


def _write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


def enter_root(root: str, visible: list[list[str]], hidden: list[str], uid: int) -> None:
    """Build the tree, make it `/` and make it read-only."""
    ns.mount(None, "/", None, ns.MS_REC | ns.MS_PRIVATE)
    build_root(root, visible, hidden, uid)
    ns.pivot_root(root)
    ns.mount(
        None,
        "/",
        None,
        ns.MS_REMOUNT | ns.MS_RDONLY | ns.MS_NOSUID | ns.MS_NODEV,
        "size=1m,nr_inodes=2048,mode=755",
    )


def start_warm_process(config: dict, control: int) -> None:
    """In a child: enter the second set of namespaces and become the warm process. Never returns there."""
    proc = os.open("/proc", os.O_PATH | os.O_DIRECTORY)
    ready, told = os.pipe()
    go, say = os.pipe()
    child = os.fork()
    if child == 0:
        ns.die_with_parent()
        ns.unshare(ns.EVERY_NAMESPACE)
        os.write(told, b"1")
        if os.read(go, 1) != b"1":
            os._exit(1)
        os.setresgid(0, 0, 0)
        os.setresuid(0, 0, 0)
        ns.die_with_parent()  # a change of user clears it
        _first_process(config, control)
    if os.read(ready, 1) == b"1":
        uid, gid = config["outside_ids"]
        ns.write_id_maps(str(child), 0, uid, gid, proc)
        os.write(say, b"1")
    os.closerange(3, 1 << 10)
    _, status = os.waitpid(child, 0)
    os._exit(os.waitstatus_to_exitcode(status) & 0xFF)


def _first_process(config: dict, control: int) -> None:
    warm = os.fork()
    if warm:
        os.close(control)
        _, status = os.waitpid(warm, 0)
        os._exit(os.waitstatus_to_exitcode(status) & 0xFF)
    ns.die_with_parent()
    ns.mount("proc", "/proc", "proc", ns.MS_NOSUID | ns.MS_NODEV | ns.MS_NOEXEC)
    os.chdir("/")
    os.set_inheritable(control, True)
    environment = dict(config["environment"])
    python, script = config["python"], "/jail/inside/worker.py"
    os.execve(
        python, [python, "-I", "-S", "-B", script, str(control), json.dumps(config["worker"])], environment
    )


def main() -> None:
    """Everything here ends when the grader does: the warm process sees its socket close."""
    control, config = int(sys.argv[1]), json.loads(sys.argv[2])
    os.umask(0o022)
    inside = config["worker"]["inside_id"]
    if config["as_root"]:
        os.setgroups([])
        ns.unshare(ns.NEWNS)
    else:
        uid, gid = os.geteuid(), os.getegid()
        ns.unshare(ns.NEWUSER | ns.NEWNS)
        ns.write_id_maps("self", 0, uid, gid)
    enter_root(config["root"], config["visible"], config["hidden"], inside)
    start_warm_process(config, control)


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.stderr.write(f"jail: {error}\n")
        os._exit(97)
