"""Numbers and texts for C, which ctypes would cut: a number to the bits that there are, a text at its first zero."""
import math
import operator

_MOST_INT = 2**31 - 1
MOST_SIZE = 2**63 - 1
MOST_ADDRESS = 2**64 - 1


def whole_number(value, name, least=-_MOST_INT - 1, most=_MOST_INT):
    """`value` as an int; TypeError or ValueError says by `name` why it is none that can be passed on."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, which is no whole number") from None
    if not least <= number <= most:
        raise ValueError(f"{name} is {number}, and must be from {least} to {most}")
    return number


def real_number(value, name):
    """`value`; TypeError says by `name` that it is none."""
    try:
        math.isnan(value)
    except TypeError:
        raise TypeError(f"{name} is {value!r}, which is no number") from None
    return value


def milliseconds(timeout):
    """Of seconds. Less than a millisecond would become 0, which is none."""
    if not real_number(timeout, "timeout") >= 0:
        raise ValueError(f"timeout is {timeout!r}, and must not be negative")
    return min(math.ceil(timeout * 1000), MOST_SIZE)


def text(value, name):
    """None remains None. The error does not quote what may be a secret."""
    if value is None:
        return None
    if not isinstance(value, str):
        raise TypeError(f"{name} is of type {type(value).__name__}, and must be a str")
    if "\0" in value:
        raise ValueError(f"{name} has a zero character in it, where the library would see its end")
    return value.encode()


def message(value):
    """A text that has to arrive, whatever is in it."""
    return None if value is None else str(value).encode(errors="backslashreplace").replace(b"\0", b"\\0")
