"""Where there is no jail, the setting is named that helps on that machine."""

from __future__ import annotations

import pytest

from grader.jail.remedy import DOCKER, KUBERNETES, Machine, remedy, this_machine

UBUNTU = ("kernel.apparmor_restrict_unprivileged_userns",)


@pytest.mark.parametrize(
    ("machine", "says", "never"),
    [
        (Machine(False, False, UBUNTU), "sysctl kernel.apparmor_restrict_unprivileged_userns=0", DOCKER),
        (Machine(False, False, ("user.max_user_namespaces",)), "user.max_user_namespaces=10000", "clone"),
        (Machine(True, True, ()), DOCKER, "sysctl"),
        (Machine(True, True, ()), KUBERNETES, "sysctl"),
        (Machine(True, False, UBUNTU), "machine that it runs on, also: sysctl kernel.apparmor", "clone"),
        (Machine(False, True, ()), "a filter on system calls forbids", "sysctl"),
        (Machine(False, False, ()), "no setting that forbids them was found", "sysctl"),
    ],
)  # fmt: skip
def test_the_setting_that_helps_is_named(machine, says, never):
    text = remedy(machine)
    assert says in text and never not in text


def test_a_container_is_known_by_what_its_runtime_says(monkeypatch):
    for name in ("KUBERNETES_SERVICE_HOST", "container"):
        monkeypatch.setenv(name, "x")
        assert this_machine().container
        monkeypatch.delenv(name)
    assert set(this_machine().forbidding) <= {
        "kernel.unprivileged_userns_clone",
        "kernel.apparmor_restrict_unprivileged_userns",
        "user.max_user_namespaces",
    }
