"""What to change on a machine that cannot isolate submissions: the setting that helps there, and no other."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

_SWITCHES = {  # a kernel setting: the value that forbids, and one that allows
    "kernel.unprivileged_userns_clone": ("0", "1"),
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "0"),
    "user.max_user_namespaces": ("0", "10000"),
}
DOCKER = "--security-opt seccomp=unconfined --security-opt apparmor=unconfined --security-opt systempaths=unconfined"  # noqa: E501
KUBERNETES = "securityContext: {seccompProfile: {type: Unconfined}, procMount: Unmasked}"


@dataclass(frozen=True)
class Machine:
    """What decides whether a process may make namespaces.

    container: this is one; filtered: a filter on system calls holds; forbidding: kernel settings that forbid.
    """

    container: bool
    filtered: bool
    forbidding: tuple[str, ...]


def this_machine() -> Machine:
    """Look at the machine; what cannot be read counts as absent."""
    container = any(os.path.exists(path) for path in ("/.dockerenv", "/run/.containerenv"))
    container = container or any(name in os.environ for name in ("KUBERNETES_SERVICE_HOST", "container"))
    status = _text("/proc/self/status").splitlines()
    filtered = any(line.split() == ["Seccomp:", "2"] for line in status)
    forbidding = [
        name
        for name, (forbids, _) in _SWITCHES.items()
        if _text(f"/proc/sys/{name.replace('.', '/')}").strip() == forbids
    ]
    return Machine(container, filtered, tuple(forbidding))


def _text(path: str) -> str:
    try:
        return Path(path).read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""


def remedy(machine: Machine) -> str:
    """Return what to do, as the end of a sentence in parentheses."""
    settings = ", ".join(f"{name}={_SWITCHES[name][1]}" for name in machine.forbidding)
    if machine.container:
        # inside, a kernel setting cannot be changed, and would not help: the container's own filter forbids
        host = f" On the machine that it runs on, also: sysctl {settings}." if settings else ""
        return (
            "this is a container, which must be started so that it may make user namespaces. Docker, Podman: "
            f"{DOCKER}. Kubernetes: {KUBERNETES}.{host} Or grade on a machine that is none"
        )
    if settings:
        return f"user namespaces must be allowed: sysctl {settings}"
    if machine.filtered:
        return (
            "a filter on system calls forbids namespaces to this process and all it starts; see what began it"
        )
    return "user namespaces must be allowed; no setting that forbids them was found"
