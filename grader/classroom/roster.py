"""A roster from a CSV file: who is in a class."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from grader.errors import UserMistake

FIELDS = ("id", "first_name", "last_name", "email", "lms_user_id")
_LONGEST = 128  # characters that nbgrader's gradebook keeps of each
_BESIDES = {"student_id": "id", "first": "first_name", "last": "last_name", "surname": "last_name"}


def read_roster(path: Path) -> list[dict[str, str]]:
    """Return {field: text} for each student; a field that is empty or has no column is left out.

    The first line names the columns: id, and any of first name, last name, email, lms_user_id.
    Raises UserMistake that names the line at fault.
    """
    lines = csv.reader(io.StringIO(_text(path), newline=""))
    try:
        columns = [_field(name) for name in next(lines, [])]
        if "id" not in columns:
            raise UserMistake(f"{path}: the first line must name the columns; one of them is `id`.")
        students: dict[str, dict[str, str]] = {}
        for values in lines:
            if not any(value.strip() for value in values):
                continue
            student = _student(columns, values, f"{path}, line {lines.line_num}")
            if student["id"] in students:
                raise UserMistake(f"{path}, line {lines.line_num}: {student['id']!r} is there twice.")
            students[student["id"]] = student
    except csv.Error as error:
        raise UserMistake(f"{path}, line {lines.line_num}: this is no CSV ({error}).") from None
    return list(students.values())


def _text(path: Path) -> str:
    try:
        return path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise UserMistake(f"The roster {path} cannot be read ({error.strerror}).") from None
    except UnicodeDecodeError:
        raise UserMistake(f"The roster {path} is not in UTF-8. Save it as `CSV UTF-8`.") from None


def _field(name: str) -> str:
    plain = "_".join(name.strip().lower().replace("-", "_").split())
    return _BESIDES.get(plain, plain)


def _student(columns: list[str], values: list[str], where: str) -> dict[str, str]:
    if len(values) > len(columns):
        raise UserMistake(f"{where}: {len(values)} values, but only {len(columns)} columns.")
    found = {c: v.strip() for c, v in zip(columns, values, strict=False) if c in FIELDS and v.strip()}
    name = found.get("id", "")
    if not name:
        raise UserMistake(f"{where}: the id is missing.")
    if not name.isprintable() or "/" in name or "\\" in name or name.startswith("."):
        raise UserMistake(f"{where}: {name!r} can be no id, since submissions lie in a folder of that name.")
    for field, value in found.items():
        if len(value) > _LONGEST:
            raise UserMistake(f"{where}: {field} is longer than {_LONGEST} characters.")
    return found
