// SPDX-License-Identifier: Apache-2.0
/* Fault rules for tests in C, as the library has no parser of their words. */
#ifndef VB_TESTS_RULES_H
#define VB_TESTS_RULES_H

/*
 * The records of a line of rules.inc, which tests/native/rules.py writes with Verbena's own parser.
 * Ends the test when these words have no line there. "": no rules.
 */
const char *rules_records(const char *words);

#endif
