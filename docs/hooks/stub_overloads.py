# SPDX-License-Identifier: Apache-2.0
"""Shows overloaded methods of a stub in the reference.

Griffe, which reads the sources for mkdocstrings, expects an implementation behind the overloads,
and a stub may have none. mkdocs.yml names this extension of Griffe's.
"""

from __future__ import annotations

from typing import Any

import griffe


class StubOverloads(griffe.Extension):
    """The last overload stands for the method, below those before it."""

    def on_class_members(self, *, cls: griffe.Class, **kwargs: Any) -> None:
        del kwargs
        for name, overloads in list(cls.overloads.items()):
            if name in cls.members or not overloads:
                continue
            last = overloads[-1]
            method = griffe.Function(
                name,
                lineno=overloads[0].lineno,
                endlineno=last.endlineno,
                parameters=last.parameters,
                returns=last.returns,
                docstring=overloads[0].docstring,
            )
            method.overloads = list(overloads[:-1])
            cls.set_member(name, method)
