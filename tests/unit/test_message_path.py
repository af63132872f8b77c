"""What `make path` counts."""

from __future__ import annotations

from tests.message_path import MessagePath


def test_a_change_of_file_is_counted_in_each_thread_by_itself() -> None:
    path = MessagePath([("a.py", "f", 1), ("b.py", "g", 2), ("a.py", "f", 1), ("b.py", "g", 1), ("b.py", "h", 2)])
    assert path.files == ["a.py", "b.py"]
    assert path.functions == [("a.py", "f"), ("b.py", "g"), ("b.py", "h")]
    assert path.changes_of_file == 1
    assert str(path) == "2 files, 3 functions, 5 calls, 1 changes of file"
    assert path.listed().splitlines() == ["a.py", "    f (2)", "b.py", "    g (2)", "    h (1)"]
