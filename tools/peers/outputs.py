"""Whether results can go where they shall: found out before they are measured. Each raises OSError, and leaves what is there."""
import os
import tempfile
from pathlib import Path


def check_file(path):
    was_there = os.path.exists(path)
    open(path, "a", encoding="utf-8").close()
    if not was_there:
        os.remove(path)


def check_folder(path):
    """There already, or to be made in one that is."""
    folder = Path(path)
    was_there = folder.exists()
    folder.mkdir(exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
    if not was_there:
        folder.rmdir()
