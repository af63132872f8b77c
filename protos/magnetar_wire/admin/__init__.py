"""The table of admin calls: their messages, who carries them out, their Python methods, and their paths on HTTP."""
