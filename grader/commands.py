"""The instructor's commands for a class: autograde, report, regrade."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grader.mistakes import UnknownName


def add_to(commands: argparse._SubParsersAction) -> None:
    """Add the commands to `python -m grader`."""
    grade = commands.add_parser(
        "autograde", help="grade a chapter for a whole class, each submission in a jail"
    )
    _where(grade)
    grade.add_argument(
        "--students", nargs="+", metavar="ID", help="ids or patterns such as 'a*'; all when left out"
    )
    grade.add_argument(
        "--workers", type=int, metavar="N", help="processes at once; one for each core when left out"
    )
    grade.add_argument(
        "--resume", action="store_true", help="go on with the last run, where it was interrupted"
    )
    grade.add_argument(
        "--scheduler", metavar="ADDRESS", help="grade on a Dask cluster, such as tcp://host:8786"
    )
    grade.add_argument(
        "--seed", type=int, help="draw the judge's cases from this seed instead of a secret one"
    )
    grade.add_argument(
        "--without-isolation", action="store_true", help="DANGEROUS: let learners' code do anything"
    )
    grade.set_defaults(run=_autograde)
    report = commands.add_parser(
        "report", help="write marks for Canvas and Moodle and a page about the class"
    )
    _where(report)
    report.add_argument(
        "--output", type=Path, metavar="FOLDER", help="where to; reports/ in the course when left out"
    )
    report.set_defaults(run=_report)
    again = commands.add_parser("regrade", help="recompute recorded marks from submissions and seeds")
    _where(again)
    again.add_argument("--students", nargs="+", metavar="ID")
    again.add_argument("--verify", action="store_true", help="compare only; exit 1 when anything differs")
    again.set_defaults(run=_regrade)


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chapter", help="a chapter, such as 03")
    parser.add_argument(
        "--course",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="the course's folder; this one when left out",
    )


def _course_and_chapter(options: argparse.Namespace):
    from grader.classroom import Course

    course = Course.at(options.course)
    folder = course.root / course.directory.release_directory
    known = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    found = [name for name in known if options.chapter in (name, name.split("_")[0])]
    if not found:
        names = ", ".join(known) or "none"
        raise UnknownName(f"There is no chapter {options.chapter!r} in {folder}. Released are: {names}.")
    return course, found[0]


def _autograde(options: argparse.Namespace) -> int:
    if not options.scheduler:
        from grader.jail import warm_up_early

        warm_up_early(not options.without_isolation)
    from grader.classroom import run

    course, chapter = _course_and_chapter(options)
    try:
        summary = run(
            course,
            chapter,
            students=options.students,
            workers=options.workers,
            resume=options.resume,
            scheduler=options.scheduler,
            seed=options.seed,
            isolated=not options.without_isolation,
        )
    except KeyboardInterrupt:
        print("\nInterrupted. Everything finished so far is kept; go on with --resume.", file=sys.stderr)
        return 130
    print(summary)
    return 1 if summary.failed else 0


def _report(options: argparse.Namespace) -> int:
    from grader.reports import write_reports

    course, chapter = _course_and_chapter(options)
    for path in write_reports(course, chapter, options.output):
        print(path)
    return 0


def _regrade(options: argparse.Namespace) -> int:
    from grader.classroom import regrade, run_again

    course, chapter = _course_and_chapter(options)
    if not options.verify:
        print(run_again(course, chapter, options.students))
        return 0
    differences = regrade(course, chapter, options.students)
    print("\n".join(differences) or "Every recorded mark was recomputed and is the same.")
    return 1 if differences else 0
