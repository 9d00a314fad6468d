"""What runs inside the jail. Nothing else of `grader` is visible there.

The folder is mounted read-only as `/jail/inside` and its modules are imported by their plain names,
so a module here may import only its neighbours, the standard library and installed packages.
None of it holds an expected value: a learner may read all of it.
"""
