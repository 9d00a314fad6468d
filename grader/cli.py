"""`python -m grader COMMAND`, for authors (build, selftest, ...) and instructors (init, autograde, ...)."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from grader.errors import UnknownName, UserMistake


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = argparse.ArgumentParser(prog="python -m grader", description="Build, test and grade the course.")
    commands = top.add_subparsers(dest="command", required=True)
    _author_commands(commands)
    _class_commands(commands)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run one command; a mistake of the user's is one clear line, not a traceback."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except UserMistake as mistake:
        print(mistake, file=sys.stderr)
        return 2


def _author_commands(commands: argparse._SubParsersAction) -> None:
    """What an author does with lessons and exercises."""
    build = commands.add_parser("build", help="rebuild notebooks and recorded cases from the lessons")
    build.add_argument("chapters", nargs="*", help="chapters, such as 02; all when none is named")
    build.add_argument("--check", action="store_true", help="change nothing; exit 1 when a file is stale")
    build.add_argument("--prose", action="store_true", help="keep outputs of lessons whose code is the same")
    build.set_defaults(run=_build)
    test = commands.add_parser("selftest", help="test the tests of the exercises")
    test.add_argument("chapters", nargs="*")
    test.add_argument(
        "--seeds",
        type=int,
        nargs="*",
        metavar="N",
        help="draw the fresh cases from these; without a number, recorded cases only",
    )
    _mutant_options(test)
    test.set_defaults(run=_selftest)
    sentences = commands.add_parser("sentences", help="write all that a learner reads, for translators")
    sentences.add_argument("file", type=Path, nargs="?", default=Path("work/transformer_lab.pot"))
    sentences.set_defaults(run=_sentences)
    demo = commands.add_parser("demo", help="grade an invented class and print its marks")
    demo.add_argument("chapters", nargs="*")
    demo.set_defaults(run=_demo)
    commands.add_parser("bench", help="print ratios measured side by side").set_defaults(run=_bench)


def _mutant_options(test: argparse.ArgumentParser) -> None:
    """The mutation test: are small changes of the solutions noticed?"""
    test.add_argument("--mutants", action="store_true", help="judge small changes of the solutions instead")
    test.add_argument("--exercise", metavar="ID", help="with --mutants: only this exercise, such as 3.5")
    test.add_argument(
        "--changed",
        nargs="?",
        const=True,
        default=False,
        metavar="REVISION",
        help="with --mutants: only what is not recorded as judged, or was not at a git revision",
    )
    test.add_argument(
        "--check", action="store_true", help="with --mutants: judge nothing; exit 1 when a record is stale"
    )
    test.add_argument(
        "--workers", type=int, metavar="N", help="processes at once (1; with --mutants one for each core)"
    )
    test.add_argument("--every", action="store_true", help="with --mutants: print what became of each")


def _class_commands(commands: argparse._SubParsersAction) -> None:
    """What an instructor does with a class."""
    init = commands.add_parser("init", help="make a folder for a class: settings, notebooks, gradebook")
    init.add_argument("folder", type=Path, metavar="FOLDER", help="a new folder, anywhere")
    init.add_argument(
        "--roster", type=Path, metavar="FILE.csv", help="id, first name, last name, email, lms_user_id"
    )
    init.set_defaults(run=_init)
    taken = commands.add_parser("collect", help="take a download of Canvas or Moodle apart, by the roster")
    taken.add_argument("download", type=Path, metavar="FILE.zip", help="all submissions, as downloaded")
    _where(taken)
    taken.set_defaults(run=_collect)
    grade = commands.add_parser(
        "autograde", help="grade a chapter for a whole class, each submission in a jail"
    )
    _where(grade)
    grade.add_argument(
        "--students",
        "--student",
        nargs="+",
        metavar="ID",
        help="ids or patterns such as 'a*'; all when left out",
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
    report.add_argument(
        "--exercises", action="store_true", help="a column for each exercise in Canvas, not only the total"
    )
    report.set_defaults(run=_report)
    explain = commands.add_parser("explain", help="say how one student's mark came about")
    explain.add_argument("student", metavar="STUDENT")
    _where(explain)
    explain.set_defaults(run=_explain)
    again = commands.add_parser(
        "regrade", help="recompute recorded marks and list what would change; --write writes it"
    )
    _where(again)
    again.add_argument("--students", "--student", nargs="+", metavar="ID")
    how = again.add_mutually_exclusive_group()
    how.add_argument("--write", action="store_true", help="write what came out; marks given by hand stay")
    how.add_argument("--verify", action="store_true", help="compare only; exit 1 when anything differs")
    how.add_argument(
        "--explain", action="store_true", help="a page for an appeal: which row failed, on which input"
    )
    again.add_argument(
        "--without-isolation",
        action="store_true",
        help="DANGEROUS: what was graded without a jail may run without one again",
    )
    again.set_defaults(run=_regrade)


# ---- authors' commands -----------------------------------------------------------------------------------


def _build(options: argparse.Namespace) -> int:
    from grader.authoring import build

    if options.check:
        stale = build.stale_files()
        for line in stale:
            print(f"differs from its lesson: {line}")
        print("Run `make build` and commit the result." if stale else "Everything built is up to date.")
        return 1 if stale else 0
    build.build(options.chapters, prose_only=options.prose)
    return 0


def _selftest(options: argparse.Namespace) -> int:
    if options.mutants:
        return _mutants(options)
    from grader.authoring.selftest import selftest

    return 0 if selftest(tuple(options.chapters), seeds=options.seeds, workers=options.workers or 1) else 1


def _sentences(options: argparse.Namespace) -> int:
    from grader.authoring.sentences import write_catalogue

    print(f"{write_catalogue(options.file)} sentences in {options.file}")
    return 0


def _mutants(options: argparse.Namespace) -> int:
    from grader.authoring.mutants import run

    chapters = tuple(options.chapters)
    if options.check:
        stale = run.unrecorded(chapters)
        for line in stale:
            print(f"its mutants were not judged as it is now: {line}")
        print(
            "Run `make mutants ARGS=--changed` and commit the result."
            if stale
            else "All mutants are explained."
        )
        return 1 if stale else 0
    wish = run.Wish(
        chapters, options.exercise, options.changed, options.seeds, options.workers, options.every
    )
    return 0 if run.test_mutants(wish) else 1


def _demo(options: argparse.Namespace) -> int:
    from grader.workshop.demo import demo

    return demo(options.chapters)


def _bench(_options: argparse.Namespace) -> int:
    from grader.workshop.bench import bench

    return bench()


# ---- instructors' commands -------------------------------------------------------------------------------


def _where(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chapter", help="a chapter, such as 03")
    parser.add_argument(
        "--course",
        type=Path,
        default=Path(),
        metavar="FOLDER",
        help="the course's folder; this one when left out",
    )


def _students(options: argparse.Namespace) -> list[str] | None:
    """Return whom --students names. `*` is everyone, also where somebody's folder is called that."""
    return None if options.students is None or "*" in options.students else options.students


def _course_and_chapter(options: argparse.Namespace):
    from grader.classroom.run import Course

    course = Course.at(options.course)
    folder = course.root / course.directory.release_directory
    known = sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []
    found = [name for name in known if options.chapter in (name, name.split("_")[0])]
    if not found:
        names = ", ".join(known) or "none"
        raise UnknownName(f"There is no chapter {options.chapter!r} in {folder}. Released are: {names}.")
    return course, found[0]


def _collect(options: argparse.Namespace) -> int:
    from grader.classroom.collect import collect

    course, chapter = _course_and_chapter(options)
    done = collect(course, options.download, chapter)
    print(done)
    return 1 if done.unmatched or done.failed else 0


def _autograde(options: argparse.Namespace) -> int:
    if not options.scheduler:
        from grader.jail import warm_up_early

        warm_up_early(not options.without_isolation)
    from grader.classroom.run import run

    course, chapter = _course_and_chapter(options)
    try:
        summary = run(
            course,
            chapter,
            students=_students(options),
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
    from grader.classroom.reports import write_reports

    course, chapter = _course_and_chapter(options)
    for path in write_reports(course, chapter, options.output, options.exercises):
        print(path)
    return 0


def _explain(options: argparse.Namespace) -> int:
    from grader.classroom.explain import explain

    course, chapter = _course_and_chapter(options)
    print(explain(course, chapter, options.student))
    return 0


def _init(options: argparse.Namespace) -> int:
    from grader.classroom.folder import make_class_folder

    print("\n".join(make_class_folder(options.folder, options.roster)))
    return 0


def _regrade(options: argparse.Namespace) -> int:
    from grader.classroom import regrade

    course, chapter = _course_and_chapter(options)
    chosen, unprotected = _students(options), options.without_isolation
    if options.explain:
        return _appeals(course, chapter, chosen, unprotected)
    if options.verify:
        differences = regrade.verify(course, chapter, chosen, unprotected=unprotected)
        print("\n".join(differences) or "Every recorded mark was recomputed and is the same.")
        return 1 if differences else 0
    again = regrade.recompute(course, chapter, chosen, writing=options.write, unprotected=unprotected)
    print(again)
    if not options.write and again.changes():
        print("Nothing was written. `--write` writes this; then make the feedback pages anew.")
    return 1 if again.failed else 0


def _appeals(course, chapter: str, chosen: list[str] | None, unprotected: bool) -> int:
    from grader.classroom.explain import appeal

    if not chosen:
        raise UserMistake("Whose mark is to be explained? Name the student: --student ID --explain")
    print("\n\n".join(appeal(course, chapter, student, unprotected) for student in chosen))
    return 0
