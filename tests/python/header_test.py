"""What the Python package says of the C interface is what the header says: functions, structs, enumerators.

    header_test.py HEADER
"""
import re
import struct
import sys
import unittest
from ctypes import POINTER, c_char_p, c_double, c_int, c_int64, c_size_t, c_uint, c_uint64, c_void_p
from pathlib import Path

import lockstep
from lockstep import _library

# What a plan or a batch saves is less than a call from Python costs; models that grow are for other languages.
NOT_BOUND = re.compile("lockstep_(batch_|plan_|reducer_add_)")

CODE = re.sub(r"/\*.*?\*/|^#.*?(?<!\\)$", "", Path(sys.argv[1]).read_text(), flags=re.S | re.M)
SCALARS = {"int": c_int, "int64_t": c_int64, "uint64_t": c_uint64, "size_t": c_size_t, "double": c_double, "char*": c_char_p,
           "void*": c_void_p, "void": None, "lockstep_error_t": c_int, "lockstep_type_t": c_uint, "lockstep_op_t": c_uint,
           "size_t*": POINTER(c_size_t), "int*": POINTER(c_int), "double*": POINTER(c_double), "void**": POINTER(c_void_p)}
STRUCTS = {"lockstep_init_t": _library.Init, "lockstep_options_t": _library.Options,
           "lockstep_parameter_t": _library.Parameter, "lockstep_reducer_options_t": _library.ReducerOptions}


def ctype(text):
    """"const size_t*" as ctypes has it; handles are void*."""
    text = re.sub(r"\bconst\b|\s", "", text)
    if text in SCALARS:
        return SCALARS[text]
    name = text.rstrip("*")
    if name in STRUCTS:
        return POINTER(STRUCTS[name])
    assert re.fullmatch(r"lockstep_\w+_t\*?", text), text
    return POINTER(c_void_p) if text.endswith("*") else c_void_p


def functions():
    """Of each that is to be bound: its name, what it returns, and its arguments."""
    for result, name, arguments in re.findall(r"LOCKSTEP_C_API ([\w* ]+?)(lockstep_\w+)\(([^)]*)\);", CODE):
        if NOT_BOUND.match(name):
            continue
        arguments = [] if arguments == "void" else arguments.split(",")
        yield name, ctype(result), [ctype(re.sub(r"\w+\s*$", "", argument)) for argument in arguments]


def fields(name):
    body = re.search(r"typedef struct \{([^}]*)\} " + name + ";", CODE).group(1)
    body = re.sub(r"void \(\*combine\)\([^)]*\)", "CombineFunction combine", body)
    for declaration in filter(None, (part.strip() for part in body.split(";"))):
        kind, names = re.match(r"((?:const )?\w+\*?)\s+(.*)", declaration, re.S).groups()
        for field in names.split(","):
            yield field.strip(), _library.CombineFunction if kind == "CombineFunction" else ctype(kind)


class Header(unittest.TestCase):
    def test_functions(self):
        found = dict((name, (result, arguments)) for name, result, arguments in functions())
        self.assertGreater(len(found), 40)
        bound = {name: (c_int, list(arguments)) for name, arguments in _library.PROTOTYPES.items()}
        bound |= {name: (result, arguments) for name, (result, *arguments) in _library.PLAIN_PROTOTYPES.items()}
        self.assertEqual(bound, found)

    def test_functions_that_return_a_code_are_checked(self):
        for name, result, _ in functions():
            if result is c_int and re.search(rf"lockstep_error_t {name}\(", CODE):
                checked = name in _library.PROTOTYPES
                self.assertEqual(checked, name != "lockstep_state", name)  # whose code is no failure

    def test_structs(self):
        for name, python in STRUCTS.items():
            self.assertEqual(list(python._fields_), list(fields(name)), name)

    def test_enumerators(self):
        for python, last in ((lockstep.ErrorCode, "DEVICE_FAILED"), (lockstep.DataType, "F8E5M2"),
                             (lockstep.ReduceOp, "PREMUL_SUM")):
            body = next(b for b in re.findall(r"typedef enum (?:\w+ )?\{([^}]*)\}", CODE) if "LOCKSTEP_" + last in b)
            found = {name: int(value) for name, value in re.findall(r"LOCKSTEP_(\w+) = (\d+)", body)}
            found.pop("USER", None)  # a function of Python in the midst of a reduction
            self.assertEqual({member.name: member.value for member in python}, found)

    def test_sizes_of_types(self):
        from lockstep.types import BY_FORMAT  # pylint: disable=import-outside-toplevel
        for code, kind in BY_FORMAT.items():
            if not code.startswith("Z"):
                self.assertEqual(struct.calcsize(code), _library.library.lockstep_type_size(kind), code)


if __name__ == "__main__":
    unittest.main(argv=["header_test"])
