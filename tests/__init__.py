# SPDX-License-Identifier: Apache-2.0
"""Verbena's tests. Helpers that assert are named here, before anything imports them: pytest then
says of their assertions, too, what was compared."""

import pytest

pytest.register_assert_rewrite("tests.programs.pairs", "tests.programs.results")
