"""The Linux calls a jail is made of: namespaces, mounts and process attributes, through ctypes.

`bwrap` does the same for one process. Here every submission is forked from a process that has already
imported torch, and must still get namespaces of its own, so the calls are made from Python, after the fork.
All functions raise `OSError` with the call's name when the kernel refuses.
"""

import ctypes
import os

NEWNS = 0x00020000
NEWCGROUP = 0x02000000
NEWUTS = 0x04000000
NEWIPC = 0x08000000
NEWUSER = 0x10000000
NEWPID = 0x20000000
NEWNET = 0x40000000
EVERY_NAMESPACE = NEWNS | NEWCGROUP | NEWUTS | NEWIPC | NEWUSER | NEWPID | NEWNET

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC = 1, 2, 4, 8
MS_REMOUNT, MS_BIND, MS_REC, MS_PRIVATE = 32, 4096, 16384, 1 << 18
MNT_DETACH = 2

_PR_SET_PDEATHSIG, _PR_SET_DUMPABLE, _PR_CAPBSET_DROP, _PR_SET_NO_NEW_PRIVS = 1, 4, 24, 38
_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL = 47, 4
_CAPABILITY_VERSION_3 = 0x20080522

_libc = ctypes.CDLL(None, use_errno=True)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return result


def unshare(flags: int) -> None:
    """Move the calling process into new namespaces; with `NEWPID`, its next child."""
    _checked(_libc.unshare(ctypes.c_int(flags)), f"unshare({flags:#x})")


def mount(
    source: str | None, target: str, kind: str | None, flags: int = 0, options: str | None = None
) -> None:
    """mount(2)."""
    arguments = [None if text is None else os.fsencode(text) for text in (source, target, kind, options)]
    result = _libc.mount(arguments[0], arguments[1], arguments[2], ctypes.c_ulong(flags), arguments[3])
    _checked(result, f"mount {kind or source} on {target}")


def bind_read_only(source: str, target: str) -> None:
    """Show `source` (a file or a folder, without the mounts below it) at `target`, read-only."""
    mount(source, target, None, MS_BIND)
    kept = _locked_flags(target)
    mount(None, target, None, MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | kept)


def _locked_flags(path: str) -> int:
    """The flags of the mount below `path` that a user namespace may not clear when it mounts again."""
    flags = os.statvfs(path).f_flag
    pairs = ((os.ST_NODEV, MS_NODEV), (os.ST_NOEXEC, MS_NOEXEC), (os.ST_NOATIME, 1024),
             (os.ST_NODIRATIME, 2048), (os.ST_RELATIME, 1 << 21))  # fmt: skip
    return sum(value for seen, value in pairs if flags & seen)


def pivot_root(new_root: str) -> None:
    """Make `new_root` (a mount point) the root, and let go of the old one."""
    os.chdir(new_root)
    number = {"x86_64": 155, "aarch64": 41}.get(os.uname().machine)
    if number is None:
        raise OSError(f"pivot_root: unknown machine {os.uname().machine}")
    _checked(_libc.syscall(ctypes.c_long(number), b".", b"."), "pivot_root")
    _checked(_libc.umount2(b".", MNT_DETACH), "umount of the old root")
    os.chdir("/")


def write_id_maps(
    process: str, inside: int, outside_user: int, outside_group: int, proc_fd: int | None = None
) -> None:
    """Name one user and one group in a process's user namespace: `inside` there is `outside_…` here."""
    for name, text in (
        ("setgroups", "deny"),
        ("uid_map", f"{inside} {outside_user} 1"),
        ("gid_map", f"{inside} {outside_group} 1"),
    ):
        path = f"{process}/{name}" if proc_fd is not None else f"/proc/{process}/{name}"
        descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC, dir_fd=proc_fd)
        try:
            os.write(descriptor, text.encode())
        finally:
            os.close(descriptor)


def _prctl(option: int, value: int = 0) -> int:
    zero = ctypes.c_ulong(0)
    return _libc.prctl(ctypes.c_int(option), ctypes.c_ulong(value), zero, zero, zero)


def die_with_parent() -> None:
    """Ask the kernel to kill this process when the thread that made it ends."""
    _checked(_prctl(_PR_SET_PDEATHSIG, 9), "prctl(PR_SET_PDEATHSIG)")


def no_new_privileges() -> None:
    """No program that this process starts can gain rights by its file's owner or capabilities."""
    _checked(_prctl(_PR_SET_NO_NEW_PRIVS, 1), "prctl(PR_SET_NO_NEW_PRIVS)")


class _CapabilityHeader(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint32), ("pid", ctypes.c_int)]


class _CapabilityData(ctypes.Structure):
    _fields_ = [
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    ]


def drop_capabilities() -> None:
    """Give up every capability, in the bounding and ambient sets too."""
    _prctl(_PR_CAP_AMBIENT, _PR_CAP_AMBIENT_CLEAR_ALL)
    capability = 0
    while _prctl(_PR_CAPBSET_DROP, capability) == 0:  # the kernel says EINVAL after its last one
        capability += 1
    header, data = _CapabilityHeader(_CAPABILITY_VERSION_3, 0), (_CapabilityData * 2)()
    _checked(_libc.capset(ctypes.byref(header), ctypes.byref(data)), "capset")
