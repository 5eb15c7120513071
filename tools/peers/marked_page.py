"""A page of which a part is written by a tool, between two marks; the rest is nobody's but its author's."""
import outputs


def parts(whole, begin, end):
    """What stands before and after the marked part of a text; None where it has no such part, or several."""
    if whole.count(begin) != 1:
        return None
    before, rest = whole.split(begin)
    return (before, rest.split(end, 1)[1]) if end in rest else None


def check(page, marks):
    """Before anything is measured: ends the program where the page has no such part, or cannot be written."""
    try:
        outputs.check_file(page)
    except OSError as error:
        raise SystemExit(f"--document: cannot write {error.filename}: {error.strerror}") from error
    if parts(page.read_text(encoding="utf-8"), *marks) is None:
        raise SystemExit(f"{page} needs one line {marks[0]} and, below it, a line {marks[1]}")


def write(page, marks, text):
    """Puts `text` between the marks of the file `page`."""
    check(page, marks)
    before, after = parts(page.read_text(encoding="utf-8"), *marks)
    page.write_text(f"{before}{marks[0]}\n\n{text}\n\n{marks[1]}{after}", encoding="utf-8")
