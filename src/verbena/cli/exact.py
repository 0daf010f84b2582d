# SPDX-License-Identifier: Apache-2.0
"""The parser of every command of `verbena`: options have their whole names.

argparse takes the begin of an option for the option, so that a script breaks, or means something
else, when another option with this begin comes. Subcommands have the same parser.
"""

from __future__ import annotations

import argparse
from typing import Any

__all__ = ["ExactParser"]


class ExactParser(argparse.ArgumentParser):
    """An ArgumentParser that takes no abbreviation of an option."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"allow_abbrev": False, **options})
