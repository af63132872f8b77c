"""The process in which tests run what the documents show: see guide.py."""

from __future__ import annotations

import json
import os
import sys
import traceback
import warnings
from typing import Any


def main() -> None:
    # Answers go where standard output went; the output of the blocks, and of Java, goes to a file.
    answers = os.fdopen(os.dup(1), "w")
    printed = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(printed, 1)
    namespaces: dict[str, dict[str, Any]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        namespace = namespaces.setdefault(request["namespace"], {"__name__": "__main__"})
        error = None
        try:
            with warnings.catch_warnings():
                if "spark" not in request["text"]:
                    warnings.simplefilter("error")
                # So that a traceback has the document's lines.
                text = "\n" * (request["line"] - 1) + request["text"]
                exec(compile(text, request["name"], "exec", dont_inherit=True), namespace)
        except BaseException:  # noqa: BLE001 (it is reported)
            error = traceback.format_exc()
        print(json.dumps({"error": error}), file=answers, flush=True)


if __name__ == "__main__":
    main()
