# SPDX-License-Identifier: Apache-2.0
"""What the tests of real programs share."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("tests.programs.pairs")
pytest.register_assert_rewrite("tests.programs.results")
