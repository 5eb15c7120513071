"""What the tests on network namespaces begin and end with. Imported after tools/lib is on the path."""
import sys
import unittest

from hosts import Hosts, HostsProblem

SKIPPED = 77  # As CTest is told.


def why_not():
    """Why this machine cannot have such hosts; None where it can."""
    try:
        Hosts(1).end()
    except HostsProblem as problem:
        return str(problem)
    return None


def main():
    """Runs the tests of the program that was started; returns its exit status."""
    if problem := why_not():
        print(f"skipped: {problem}")
        return SKIPPED
    result = unittest.main(argv=sys.argv[:1], exit=False, verbosity=2).result
    return 0 if result.wasSuccessful() else 1
