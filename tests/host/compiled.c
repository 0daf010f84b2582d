// SPDX-License-Identifier: Apache-2.0
/*
 * Ordinary C for the simulated processor: tests/host/test_compiled.py compiles it in several ways,
 * lets `start` run there, and compares `results` with what Python says.
 */
typedef unsigned char byte;
typedef unsigned int word;
typedef unsigned long quad;
__extension__ typedef unsigned __int128 wide;

quad results[32];
byte text[64];
quad input = 12345678901234567; /* not constant for the compiler, as it may be changed */
volatile int seven = 7;

/* Compilers call it for the copy of a structure. */
void *memcpy(void *to, const void *from, quad size)
{
    void *at = to;

    __asm__ volatile("rep movsb" : "+D"(at), "+S"(from), "+c"(size) : : "memory");
    return to;
}

static word crc_table[256];

static word crc_of(const byte *data, quad size)
{
    word crc = ~0u;

    for (word i = 0; i < 256; ++i) {
        word one = i;

        for (int bit = 0; bit < 8; ++bit)
            one = one & 1 ? 0xedb88320u ^ one >> 1 : one >> 1;
        crc_table[i] = one;
    }
    for (quad i = 0; i < size; ++i)
        crc = crc_table[(crc ^ data[i]) & 255] ^ crc >> 8;
    return ~crc;
}

static void sort(long *values, int count)
{
    for (int i = 1; i < count; ++i) {
        long one = values[i];
        int at = i;

        for (; at > 0 && values[at - 1] > one; --at)
            values[at] = values[at - 1];
        values[at] = one;
    }
}

static quad fibonacci(int n)
{
    return n < 2 ? (quad)n : fibonacci(n - 1) + fibonacci(n - 2);
}

static quad decimals(quad value, byte *to)
{
    byte digits[24];
    int count = 0;

    do
        digits[count++] = (byte)('0' + value % 10);
    while (value /= 10);
    for (int i = 0; i < count; ++i)
        to[i] = digits[count - 1 - i];
    return (quad)count;
}

static int chosen(int number)
{
    switch (number) {
    case 0:
        return 7;
    case 1:
        return 9;
    case 2:
        return 13;
    case 3:
        return 1;
    case 4:
        return 88;
    case 5:
        return 12;
    default:
        return -1;
    }
}

struct block {
    quad words[20];
};

static struct block copied(const struct block *from)
{
    return *from;
}

void start(void)
{
    static const byte digits[] = "123456789";
    quad value = *(volatile quad *)&input, expected = 21;
    wide product = (wide)value * (value + 3), shifted = product << seven;
    struct block first, second;
    long numbers[20];

    for (int i = 0; i < 20; ++i) {
        numbers[i] = (long)i * 7919 % 31 - 15;
        first.words[i] = value + (quad)i;
    }
    sort(numbers, 20);
    second = copied(&first);
    results[0] = crc_of(digits, 9);
    results[1] = (quad)numbers[0];
    results[2] = (quad)numbers[19];
    results[3] = fibonacci(12);
    results[4] = decimals(value, text);
    results[5] = (quad)product;
    results[6] = (quad)(product >> 64);
    results[7] = (quad)shifted;
    results[8] = (quad)(shifted >> 64);
    results[9] = (quad)(product >> seven);
    results[10] = second.words[19];
    results[11] = (quad)__builtin_ctzl(value << 4);
    results[12] = (quad)__builtin_clzl(value);
    results[13] = __builtin_bswap64(value);
    results[14] = value << seven | value >> (64 - seven);
    results[15] = (quad)((long)value / -seven);
    results[16] = (quad)((long)value % -seven);
    results[17] = (quad)(short)value + (quad)(int)value * 3 + (byte)value;
    results[18] = (quad)chosen(seven - 3);
    results[19] = value % 1000003;
    results[20] = 16;
    __atomic_fetch_add(&results[20], 5, __ATOMIC_SEQ_CST);
    results[21] = (quad)__atomic_compare_exchange_n(&results[20], &expected, 99, 0,
                                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
    results[22] = __atomic_exchange_n(&results[20], 1, __ATOMIC_SEQ_CST);
    results[23] = __atomic_fetch_or(&results[20], 6, __ATOMIC_SEQ_CST);
    results[24] = (quad)__builtin_ffsl((long)value << 5);
}
