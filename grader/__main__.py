"""`python -m grader COMMAND`: build, selftest, demo, bench; autograde, report, regrade."""

from __future__ import annotations

import argparse
import sys

from grader import commands as class_commands
from grader.mistakes import UserMistake


def _build(options: argparse.Namespace) -> int:
    from grader import build

    if options.check:
        stale = build.stale_files()
        for line in stale:
            print(f"differs from its lesson: {line}")
        print("Run `make build` and commit the result." if stale else "Everything built is up to date.")
        return 1 if stale else 0
    build.build(options.chapters, prose_only=options.prose)
    return 0


def _selftest(options: argparse.Namespace) -> int:
    from grader.selftest import selftest

    return 0 if selftest(tuple(options.chapters)) else 1


def _demo(options: argparse.Namespace) -> int:
    from grader.demo import demo

    return demo(options.chapters)


def _bench(_options: argparse.Namespace) -> int:
    from grader.bench import bench

    return bench()


def parser() -> argparse.ArgumentParser:
    """Return the command line's parser."""
    top = argparse.ArgumentParser(prog="python -m grader", description="Build, test and grade the course.")
    commands = top.add_subparsers(dest="command", required=True)
    build = commands.add_parser("build", help="rebuild notebooks and recorded cases from the lessons")
    build.add_argument("chapters", nargs="*", help="chapters, such as 02; all when none is named")
    build.add_argument("--check", action="store_true", help="change nothing; exit 1 when a file is stale")
    build.add_argument("--prose", action="store_true", help="keep outputs of lessons whose code is the same")
    build.set_defaults(run=_build)
    test = commands.add_parser("selftest", help="test the tests of the exercises")
    test.add_argument("chapters", nargs="*")
    test.set_defaults(run=_selftest)
    demo = commands.add_parser("demo", help="grade an invented class and print its marks")
    demo.add_argument("chapters", nargs="*")
    demo.set_defaults(run=_demo)
    commands.add_parser("bench", help="print ratios measured side by side").set_defaults(run=_bench)
    class_commands.add_to(commands)
    return top


def main(arguments: list[str] | None = None) -> int:
    """Run one command; a mistake of the user's is one clear line, not a traceback."""
    options = parser().parse_args(arguments)
    try:
        return options.run(options)
    except UserMistake as mistake:
        print(mistake, file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
