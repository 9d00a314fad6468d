"""A system-call filter for learners' processes, assembled by hand: no library needed.

Namespaces already keep a submission from anything outside. The filter takes away calls that a notebook has no
use for and that would get around a limit (memory that no limit counts) or reach for the kernel itself. A
refused call fails with EPERM, so a learner sees an ordinary `OSError`.
"""

import ctypes
import errno
import os
import struct

_LOAD, _JUMP_EQUAL, _JUMP_SET, _JUMP_GREATER_EQUAL, _RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
_ALLOW, _KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000
_NUMBER_AT, _ARCHITECTURE_AT, _FIRST_ARGUMENT_AT = 0, 4, 16
_X32_BIT = 0x40000000
_AF_UNIX = 1
_NEW_NAMESPACE_FLAGS = 0x7E020080  # CLONE_NEW{USER,PID,NET,UTS,IPC,CGROUP,NS,TIME}

# name: (x86_64, aarch64); None where the machine has no such call
_REFUSED = {
    # debugging and reading other processes
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "kcmp": (312, 272),
    "pidfd_getfd": (438, 438), "process_madvise": (440, 440),
    # memory that resource limits do not count
    "memfd_create": (319, 279), "memfd_secret": (447, 447), "shmget": (29, 194), "shmat": (30, 196),
    "msgget": (68, 186), "semget": (64, 190), "mq_open": (240, 180),
    # mounts and namespaces
    "mount": (165, 40), "umount2": (166, 39),
    "pivot_root": (155, 41), "chroot": (161, 51), "unshare": (272, 97),
    "setns": (308, 268), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "fsmount": (432, 432),
    "mount_setattr": (442, 442), "open_by_handle_at": (304, 265), "name_to_handle_at": (303, 264),
    # the kernel's larger doors
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "add_key": (248, 217), "request_key": (249, 218),
    "keyctl": (250, 219), "fanotify_init": (300, 262), "personality": (135, 92), "syslog": (103, 116),
    "init_module": (175, 105), "finit_module": (313, 273),
    "delete_module": (176, 106), "kexec_load": (246, 104),
    "reboot": (169, 142), "swapon": (167, 224),
    "swapoff": (168, 225), "acct": (163, 89), "quotactl": (179, 60),
    "clock_settime": (227, 112), "settimeofday": (164, 170), "adjtimex": (159, 171), "iopl": (172, None),
    "ioperm": (173, None), "modify_ldt": (154, None), "vmsplice": (278, 75), "lookup_dcookie": (212, 18),
}  # fmt: skip
_MACHINES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_CLONE, _CLONE3, _SOCKET = (56, 220), (435, 435), (41, 198)


def _step(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    return struct.pack("HBBI", code, if_true, if_false, value)


def _refuse(number: int) -> bytes:
    return _step(_RETURN, _ERRNO | number)


def program(machine: str) -> bytes:
    """The filter for a machine name as `os.uname` gives it, as the bytes of `struct sock_filter`s.

    Raises `KeyError` for a machine whose call numbers are not listed here.
    """
    column, architecture = _MACHINES[machine]
    load_number, allow = _step(_LOAD, _NUMBER_AT), _step(_RETURN, _ALLOW)
    steps = [
        _step(_LOAD, _ARCHITECTURE_AT),
        _step(_JUMP_EQUAL, architecture, 1, 0),
        _step(_RETURN, _KILL),
        load_number,
    ]
    if machine == "x86_64":
        steps += [_step(_JUMP_GREATER_EQUAL, _X32_BIT, 0, 1), _refuse(errno.ENOSYS)]
    for numbers in _REFUSED.values():
        if numbers[column] is not None:
            steps += [_step(_JUMP_EQUAL, numbers[column], 0, 1), _refuse(errno.EPERM)]
    # glibc falls back to clone, whose flags can be read, when clone3 does not exist
    steps += [_step(_JUMP_EQUAL, _CLONE3[column], 0, 1), _refuse(errno.ENOSYS)]
    steps += [_step(_JUMP_EQUAL, _CLONE[column], 0, 4), _step(_LOAD, _FIRST_ARGUMENT_AT)]
    steps += [_step(_JUMP_SET, _NEW_NAMESPACE_FLAGS, 0, 1), _refuse(errno.EPERM), allow]
    steps += [_step(_JUMP_EQUAL, _SOCKET[column], 0, 3), _step(_LOAD, _FIRST_ARGUMENT_AT)]
    steps += [_step(_JUMP_EQUAL, _AF_UNIX, 1, 0), _refuse(errno.EACCES), allow]
    return b"".join(steps)


class _Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("steps", ctypes.c_char_p)]


def install() -> None:
    """Filter this process and all it starts, for good. Needs `no_new_privileges` first. Raises `OSError`."""
    libc = ctypes.CDLL(None, use_errno=True)
    steps = program(os.uname().machine)
    filter_ = _Program(len(steps) // 8, steps)
    if libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(filter_), ctypes.c_ulong(0), ctypes.c_ulong(0)) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {os.strerror(number)}")
