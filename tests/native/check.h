// SPDX-License-Identifier: Apache-2.0
#ifndef VB_TESTS_CHECK_H
#define VB_TESTS_CHECK_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef VERBENA_SANITIZE_THREADS /* everything takes ten times as long */
#include <unistd.h>
#define alarm(seconds)           alarm(10 * (seconds))
#define PATIENT_TIMEOUT(timeout) ((timeout) + 5)
#else
#define PATIENT_TIMEOUT(timeout) (timeout)
#endif

/* Ends the test program with status 1 and says which expectation failed. */
#define CHECK(condition)                                                                           \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, __func__, #condition);          \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define CHECK_EQ(left, right)                                                                      \
    do {                                                                                           \
        long long left_ = (long long)(left), right_ = (long long)(right);                          \
        if (left_ != right_) {                                                                     \
            fprintf(stderr, "%s:%d: %s: %s is %lld, not %s = %lld\n", __FILE__, __LINE__,          \
                    __func__, #left, left_, #right, right_);                                       \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

#define RUN(test)                                                                                  \
    do {                                                                                           \
        test();                                                                                    \
        printf("ok %s\n", #test);                                                                  \
    } while (0)

#endif
