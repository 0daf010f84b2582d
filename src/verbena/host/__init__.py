# SPDX-License-Identifier: Apache-2.0
"""The inside of a computer: a processor that runs machine code, memory, devices and a bus."""
