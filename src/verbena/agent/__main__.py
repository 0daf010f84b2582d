# SPDX-License-Identifier: Apache-2.0
"""`python -m verbena.agent`: the agent as a program starts it, with nothing to print to."""

from __future__ import annotations

import os
import sys


def main() -> int:
    """Run the agent until nobody uses it."""
    from verbena.agent.running import prepare_environment, run_agent

    prepare_environment(os.environ)
    os.chdir("/")  # whatever it was, it may be unmounted
    try:
        run_agent()
    except OSError:
        return 1  # another agent has the name, or there is no device
    return 0


if __name__ == "__main__":
    sys.exit(main())
