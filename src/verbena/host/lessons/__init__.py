# SPDX-License-Identifier: Apache-2.0
"""Programs that are shown one step at a time, down to the transactions on the bus."""

from verbena.host.lessons.frames import Frame, frames_of
from verbena.host.lessons.programs import LESSONS, Lesson, lesson_of_file

__all__ = ["LESSONS", "Frame", "Lesson", "frames_of", "lesson_of_file"]
