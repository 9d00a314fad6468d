"""The files that say what is installed agree, and .venv is built, updated or left alone as it should be."""

import importlib.metadata
import json
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from tools import environment

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture(scope="module")
def project() -> dict:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@pytest.fixture(scope="module")
def pins() -> dict[str, Version]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {canonicalize_name(name): Version(version) for name, version in pairs}


def direct_requirements(project: dict) -> list[Requirement]:
    lines = project["dependencies"] + [
        line for extra in project["optional-dependencies"].values() for line in extra
    ]
    return [req for req in map(Requirement, lines) if req.name != project["name"]]


def installed_closure(name: str, extra: str) -> dict[str, Version]:
    """Every distribution that `name`[`extra`] brings on this machine, with its installed version."""
    found, todo = {}, [(name, extra)]
    seen = set()
    while todo:
        name, extra = todo.pop()
        if (name, extra) in seen:
            continue
        seen.add((name, extra))
        distribution = importlib.metadata.distribution(name)
        found[canonicalize_name(name)] = Version(distribution.version)
        for requirement in map(Requirement, distribution.requires or []):
            if requirement.marker is None or requirement.marker.evaluate({"extra": extra}):
                todo += [(requirement.name, option) for option in ("", *requirement.extras)]
    return found


# ---------------------------------------------------------------- the three files agree


def test_every_direct_dependency_is_pinned_within_its_range(project, pins):
    for requirement in direct_requirements(project):
        pin = pins.get(canonicalize_name(requirement.name))
        assert pin is not None, f"{requirement.name} has no pin in constraints.txt"
        assert pin in requirement.specifier, f"{requirement.name}=={pin} is outside {requirement.specifier}"


def test_every_direct_dependency_says_why_it_is_there(project):
    lines = (ROOT / "pyproject.toml").read_text(encoding="utf-8").splitlines()
    for requirement in direct_requirements(project):
        line = next(line for line in lines if line.strip().startswith(f'"{requirement.name}'))
        assert "#" in line, f"{requirement.name}: add a comment that says what it is for"


def test_what_runs_these_tests_is_what_is_pinned(project, pins):
    """Else the tested versions are not the pinned ones. Repaired by `make env`, or by a new pin."""
    for name, version in installed_closure(project["name"], "dev").items():
        if name == project["name"]:
            continue
        assert name in pins, (
            f"{name} {version} is installed as a dependency but has no pin in constraints.txt"
        )
        assert version.public == pins[name].public, f"{name} {version} is installed, {pins[name]} is pinned"


def test_torch_is_pinned_without_a_build(pins):
    assert pins["torch"].local is None, "pin torch without +cpu: macOS and Windows have no such build"


def test_conda_environment_is_in_step(project, pins):
    conda = yaml.safe_load((ROOT / "environment.yml").read_text(encoding="utf-8"))
    assert conda["name"] == project["name"]
    python = next(item for item in conda["dependencies"] if str(item).startswith("python="))
    assert Requirement(f"python{project['requires-python']}").specifier.contains(python.split("=")[1])
    pip_lines = next(item["pip"] for item in conda["dependencies"] if isinstance(item, dict))
    assert "-c constraints.txt" in pip_lines
    assert "-e .[grading]" in pip_lines
    torch = next(Requirement(line) for line in pip_lines if line.startswith("torch"))
    assert str(torch.specifier) == f"=={pins['torch']}+cpu"
    assert f"--extra-index-url {environment.TORCH_WHEELS}cpu" in pip_lines


def test_installed_torch_has_no_cuda_libraries():
    """Several GB that nobody asked for: only another build of torch, chosen on purpose, may bring them."""
    if environment.read_stamp(ROOT / ".venv").get("torch", "cpu") != "cpu":
        pytest.skip("this environment was made with another build of torch on purpose")
    names = {canonicalize_name(d.metadata["Name"]) for d in importlib.metadata.distributions()}
    assert not {name for name in names if name.startswith(("nvidia-", "triton"))}


# ---------------------------------------------------------------- tools/environment.py


@pytest.fixture
def checkout(tmp_path, monkeypatch) -> Path:
    """A folder with this project's pins, where nothing is really installed."""
    for name in ("pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    monkeypatch.setattr(environment, "install", lambda root, venv, torch: None)
    monkeypatch.setattr(environment, "create", fake_create)
    monkeypatch.setattr(environment, "runs", lambda venv: (venv / "python").exists())
    return tmp_path


def fake_create(venv: Path) -> None:
    if venv.exists():
        environment.shutil.rmtree(venv)
    venv.mkdir()
    (venv / "unfinished").touch()
    (venv / "python").touch()


def test_missing_environment_is_built_once(checkout, capsys):
    assert "ready" in environment.make(checkout)
    assert "building .venv from nothing, since there is none yet" in capsys.readouterr().out
    assert not (checkout / ".venv" / "unfinished").exists()
    assert environment.make(checkout) == "environment: .venv is up to date"


def test_changed_pins_update_in_place(checkout, capsys):
    environment.make(checkout)
    (checkout / ".venv" / "kept").touch()
    pins = checkout / "constraints.txt"
    pins.write_text(pins.read_text(encoding="utf-8") + "another==1.0\n", encoding="utf-8")
    environment.make(checkout)
    assert "updating .venv" in capsys.readouterr().out
    assert (checkout / ".venv" / "kept").exists()
    assert "up to date" in environment.make(checkout)


def test_settings_of_the_linter_update_nothing(checkout):
    environment.make(checkout)
    settings = checkout / "pyproject.toml"
    text = settings.read_text(encoding="utf-8")
    settings.write_text(text.replace("line-length = 110", "line-length = 111"), encoding="utf-8")
    assert "up to date" in environment.make(checkout)


def test_half_built_environment_is_built_again(checkout, capsys, monkeypatch):
    def interrupted(root, venv, torch):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(environment, "install", interrupted)
        environment.make(checkout)
    (checkout / ".venv" / "leftover").touch()
    environment.make(checkout)
    assert "its first build did not finish" in capsys.readouterr().out
    assert not (checkout / ".venv" / "leftover").exists()


def test_failed_update_keeps_the_environment_and_is_tried_again(checkout, monkeypatch):
    environment.make(checkout)
    (checkout / ".venv" / "kept").touch()

    def offline(root, venv, torch):
        raise environment.Trouble("no network")

    with monkeypatch.context() as patch, pytest.raises(environment.Trouble):
        patch.setattr(environment, "install", offline)
        environment.make(checkout, torch="cu128")
    assert (checkout / ".venv" / "kept").exists()
    assert "ready" in environment.make(checkout)


def test_dead_python_is_replaced(checkout, capsys):
    environment.make(checkout)
    (checkout / ".venv" / "python").unlink()
    environment.make(checkout)
    assert "its Python no longer runs" in capsys.readouterr().out


def test_choice_of_torch_is_remembered(checkout):
    environment.make(checkout, torch="cu128")
    assert "up to date" in environment.make(checkout)
    assert json.loads((checkout / ".venv" / "stamp.json").read_text(encoding="utf-8"))["torch"] == "cu128"


def test_linux_asks_for_the_build_without_cuda(monkeypatch, pins):
    monkeypatch.setattr(environment.platform, "system", lambda: "Linux")
    assert f"torch=={pins['torch']}+cpu" in environment.torch_command(ROOT, "cpu")
    monkeypatch.setattr(environment.platform, "system", lambda: "Darwin")
    assert environment.torch_command(ROOT, "cpu") == []


def test_real_environment_is_recognised(tmp_path):
    """`runs` tells an environment whose Python starts from a broken one."""
    assert environment.runs(Path(sys.prefix))
    assert not environment.runs(tmp_path)
