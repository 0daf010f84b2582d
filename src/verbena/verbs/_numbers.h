// SPDX-License-Identifier: Apache-2.0
// An int of Python as a C number, without a call: for what each request gives. With a call for each
// of its seven numbers a WRITE was posted in 240 ns, and in 170 so. _numbers.pxi uses this; what
// is not an int from 0 to 2**60 - 1 (or 2**30 - 1 on 32-bit machines) goes to `refusal` there.
// The layout is that of the CPython versions up to 3.14. A newer one may have another, and there
// the functions that CPython documents are used: 9 ns more for a WRITE, whose address and rkey are
// larger than a compact int (measured with 3.13).
#ifndef VERBENA_VERBS_NUMBERS_H
#define VERBENA_VERBS_NUMBERS_H

#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef uint64_t vb_refusal(PyObject *value, PyObject *name, uint64_t limit);

#if PY_VERSION_HEX >= 0x030F0000

static inline bool vb_number(PyObject *value, uint64_t *number)
{
    if (!PyLong_Check(value))
        return false;
    if (PyUnstable_Long_IsCompact((PyLongObject *)value)) {
        const Py_ssize_t small = PyUnstable_Long_CompactValue((PyLongObject *)value);

        *number = (uint64_t)small;
        return small >= 0;
    }
    *number = PyLong_AsUnsignedLongLong(value);
    if (*number != UINT64_MAX || !PyErr_Occurred())
        return true;
    PyErr_Clear(); // negative, or too large
    return false;
}

#else

static inline __attribute__((always_inline)) bool vb_number(PyObject *value, uint64_t *number)
{
    if (!PyLong_Check(value))
        return false;
#if PY_VERSION_HEX >= 0x030C0000
    const struct _PyLongValue *v = &((PyLongObject *)value)->long_value;
    if ((v->lv_tag & 3) == 2) // negative
        return false;
    const size_t count = v->lv_tag >> 3;
    const digit *digits = v->ob_digit;
#else
    const Py_ssize_t count = Py_SIZE(value); // negative, if the number is
    const digit *digits = ((PyLongObject *)value)->ob_digit;
#endif
    if (count == 1)
        *number = digits[0];
    else if (count == 2)
        *number = digits[0] | (uint64_t)digits[1] << PyLong_SHIFT;
    else if (count == 0)
        *number = 0;
    return count == 0 || count == 1 || count == 2;
}

#endif

static inline
    __attribute__((always_inline)) uint64_t vb_number_to(PyObject *value, PyObject *name,
                                                         uint64_t limit, vb_refusal *refusal)
{
    uint64_t number;

    if (__builtin_expect(vb_number(value, &number) && number <= limit, 1))
        return number;
    return refusal(value, name, limit);
}

static inline __attribute__((always_inline)) uint64_t vb_u64(PyObject *value, PyObject *name,
                                                             vb_refusal *refusal)
{
    return vb_number_to(value, name, UINT64_MAX, refusal);
}

static inline __attribute__((always_inline)) uint32_t vb_u32(PyObject *value, PyObject *name,
                                                             vb_refusal *refusal)
{
    return (uint32_t)vb_number_to(value, name, UINT32_MAX, refusal);
}

static inline __attribute__((always_inline)) size_t vb_size(PyObject *value, PyObject *name,
                                                            vb_refusal *refusal)
{
    return (size_t)vb_number_to(value, name, SIZE_MAX, refusal);
}

#endif
