"""What the process that forks workers holds when the grader has other threads: all of grading, imported once.

Importing it has an effect, which is its purpose: it is named as what multiprocessing's fork server preloads.
"""

import sys

import grader.grading.job  # noqa: F401

if sys.platform.startswith("linux"):
    from grader.jail.inside.namespaces import die_with_parent

    die_with_parent()
