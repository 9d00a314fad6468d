"""Grades a class: pools, one writer, records, reports. Changes nothing in nbgrader."""
