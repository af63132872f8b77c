"""Rename an identifier, or move a module, everywhere in the tree.

`python -m tests.rename OLD NEW` renames an identifier (`identifiers.py`), `python -m tests.rename --module OLD NEW`
moves a module or package (`modules.py`). Both change all files that git knows: Python code, comments, strings,
documents, mutants and branches to be reached. Generated code, recorded data and other languages are never changed
(`tree.py`).

Neither knows types. Two classes may have a method of the same name: `--in` limits a rename to some files. An English
word (`take`, `room`) is only renamed where it is code, or marked as code in a sentence: `take`, `.take`, `take(`.
Afterwards imports are sorted, the code is formatted, and comments that became too long are wrapped (`tidy.py`).
"""
