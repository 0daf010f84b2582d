// SPDX-License-Identifier: Apache-2.0
/*
 * Verbena's own calls about faults and captures: what they return, which packets new rules hold or
 * release, and what stderr says of rules that do nothing. The environment is read once, so each
 * part has a process of its own.
 */
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "dropin/verbena.h"
#include "pair.h"

/* As tests/native/rules.inc has them, but for the time of the last one. */
#define NONE "1 7 400 0 | ; ;; "
#define DROP                                                                                       \
    "1 1 400 1 0 0 4 1 0 0 0 0 0 0 0 0 0 0 0 100000000 0 0 0 0 0 1 989680 1 0 0 0 0 0 |drop"
#define FAR_OFF                                                                                    \
    "1 1 400 1 0 0 10 1 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 989680 1 0 0 0 0 0 |drop 0% nth=1000"
#define MINUTE                                                                                     \
    "1 1 400 1 3 0 9 1 0 0 0 0 0 0 0 0 0 0 0 100000000 0 0 0 df8475800 df8475800 1 989680 1 0 0 "  \
    "0 "                                                                                           \
    "0 0 |delay 60s"

static struct pair pair;
static char text[512];
static int told = -1; /* what the library wrote */

static int lines_told(void)
{
    static char said[1 << 16];
    ssize_t got = pread(told, said, sizeof(said) - 1, 0);
    int lines = 0;

    CHECK(got >= 0);
    said[got] = '\0';
    for (const char *at = said; (at = strchr(at, '\n')); ++at)
        ++lines;
    if (lines)
        CHECK(strstr(said, "fault rules (fault.set_rules) do nothing to it"));
    CHECK_EQ(ftruncate(told, 0), 0);
    CHECK_EQ(lseek(told, 0, SEEK_SET), 0);
    return lines;
}

/* In a process of its own, with that carrier; what it says on stderr is in `told`. */
static void in_process(const char *carrier, void (*work)(void))
{
    int status, ours = dup(STDERR_FILENO);
    pid_t child;

    told = memfd_create("told", MFD_CLOEXEC);
    CHECK(told >= 0 && ours >= 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        alarm(60);
        CHECK_EQ(setenv("VERBENA_CARRIER", carrier, 1), 0);
        CHECK(dup2(told, STDERR_FILENO) >= 0);
        work();
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    if (status) {
        ssize_t got = pread(told, text, sizeof(text), 0);

        CHECK_EQ(write(ours, text, got > 0 ? (size_t)got : 0), got);
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 77) {
        printf("UDP port 4791 is taken; `ss -ulnpe` says by whom\n");
        exit(77);
    }
    CHECK_EQ(status, 0);
    close(told);
    close(ours);
}

static int set(const char *records)
{
    strcpy(text, "nothing");
    return verbena_set_fault(pair.context, records, text, sizeof(text));
}

/* Of the rules that hold. */
static const char *counters(void)
{
    static char all[512];
    int length = verbena_fault_counters(pair.context, all, sizeof(all));

    CHECK_EQ(length, strlen(all));
    return all;
}

static void post_write(void)
{
    struct ibv_sge sge = pair_sge(&pair);
    struct ibv_send_wr *bad, wr = pair_write(&pair, &sge);

    CHECK_EQ(ibv_post_send(pair.qp[0], &wr, &bad), 0);
}

static bool completes_within(int milliseconds)
{
    const struct timespec pause = {.tv_nsec = 1000000};
    struct ibv_wc wc;

    for (; milliseconds >= 0; --milliseconds) {
        int got = ibv_poll_cq(ibv_cq_ex_to_cq(pair.cq), 1, &wc);

        CHECK(got >= 0);
        if (got) {
            CHECK_EQ(wc.status, IBV_WC_SUCCESS);
            return true;
        }
        nanosleep(&pause, NULL);
    }
    return false;
}

/* Both ends anew; 0: they wait for an acknowledgement as long as it takes. */
static void connect_again(uint8_t timeout)
{
    struct ibv_qp_attr reset = {.qp_state = IBV_QPS_RESET};

    for (int i = 0; i < 2; ++i)
        CHECK_EQ(ibv_modify_qp(pair.qp[i], &reset, IBV_QP_STATE), 0);
    for (int i = 0; i < 2; ++i)
        pair_connect_within(&pair, pair.qp[i], pair.qp[1 - i]->qp_num, timeout);
}

/* ---- what the calls return --------------------------------------------------------------------
 */

static void without_packets(void)
{
    pair_open(&pair);
    for (int i = 0; i < 2; ++i) {
        CHECK_EQ(set(i ? DROP : ""), -EOPNOTSUPP);
        CHECK_EQ(strcmp(text, "the device sends no packets that faults could meet"), 0);
        CHECK_EQ(verbena_fault_counters(pair.context, text, sizeof(text)), -EOPNOTSUPP);
    }
    CHECK_EQ(lines_told(), 0);
}

static void with_packets(void)
{
    pair_open(&pair);
    CHECK_EQ(strcmp(counters(), ""), 0);
    CHECK_EQ(set("2 |"), -EINVAL);
    CHECK(strstr(text, "another version"));
    CHECK_EQ(strcmp(counters(), ""), 0);
    CHECK_EQ(set(FAR_OFF), 0);
    CHECK_EQ(strcmp(text, "nothing"), 0);
    post_write();
    CHECK(completes_within(10000));
    CHECK(strstr(counters(), "drop 0% nth=1000: matched ") == counters());
    CHECK_EQ(set("2 |"), -EINVAL); /* and those before hold */
    CHECK(strstr(counters(), "drop 0% nth=1000: matched "));
    CHECK_EQ(set(NONE), 0);
    CHECK_EQ(strcmp(counters(), ""), 0);
    CHECK_EQ(lines_told(), 0); /* all goes by packets */
}

/* Each new set of rules sends what the last one held, without a poll. */
static void what_is_held_leaves(void)
{
    const struct timespec pause = {.tv_nsec = 50000000};
    uint8_t *to = pair.memory + 64;

    pair_open(&pair);
    connect_again(0);
    for (uint8_t round = 1; round <= 2; ++round) {
        CHECK_EQ(set(MINUTE), 0);
        pair.memory[0] = round;
        post_write();
        CHECK(!completes_within(100));
        nanosleep(&pause, NULL); /* the port's thread has gone to sleep */
        CHECK(*to != round);
        CHECK_EQ(set(round == 1 ? NONE : FAR_OFF), 0);
        for (int i = 0; i < 400 && *(volatile uint8_t *)to != round; ++i)
            nanosleep(&pause, NULL);
        CHECK_EQ(*to, round);
        CHECK(completes_within(10000));
    }
}

static void in_a_forked_child(void)
{
    int status;
    pid_t child;

    pair_open(&pair);
    CHECK_EQ(set(FAR_OFF), 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK_EQ(set(""), -ENODEV);
        CHECK_EQ(verbena_fault_counters(pair.context, text, sizeof(text)), -ENODEV);
        _exit(0);
    }
    CHECK_EQ(waitpid(child, &status, 0), child);
    CHECK_EQ(status, 0);
    CHECK(strstr(counters(), "drop 0% nth=1000"));
}

/* ---- rules that do nothing --------------------------------------------------------------------
 */

/* A connection is there: the first rules say so, and no others. */
static void rules_for_what_goes_direct(void)
{
    pair_open(&pair);
    if (verbena_fault_counters(pair.context, text, sizeof(text)) == -EOPNOTSUPP)
        _exit(77); /* no packets */
    CHECK_EQ(lines_told(), 0);
    CHECK_EQ(set(NONE), 0);
    CHECK_EQ(set(""), 0);
    CHECK_EQ(set("2 |"), -EINVAL);
    CHECK_EQ(lines_told(), 0);
    CHECK_EQ(set(DROP), 0);
    CHECK_EQ(lines_told(), 1);
    CHECK_EQ(set(DROP), 0);
    CHECK_EQ(lines_told(), 0);
    CHECK_EQ(set(NONE), 0); /* from here on nobody is to be told */
    CHECK_EQ(set(FAR_OFF), 0);
    CHECK_EQ(lines_told(), 1);
}

/* Rules that were there before the connection, and those that are withdrawn before it. */
static void rules_before_the_connection(void)
{
    pair.context = pair_open_device();
    CHECK_EQ(set(DROP), 0);
    CHECK_EQ(lines_told(), 0);
    CHECK_EQ(set(NONE), 0);
    pair_open_on(&pair, pair.context);
    CHECK_EQ(lines_told(), 0);
    CHECK_EQ(ibv_close_device(pair.context), 0);

    pair.context = pair_open_device();
    CHECK_EQ(set(DROP), 0);
    CHECK_EQ(set("2 |"), -EINVAL);
    CHECK_EQ(lines_told(), 0);
    pair_open_on(&pair, pair.context);
    CHECK_EQ(lines_told(), 1);
    connect_again(8);
    CHECK_EQ(lines_told(), 0);
}

/* ---- captures ---------------------------------------------------------------------------------
 */

/* Whatever else has that name stays as it is. */
static void a_capture_begins_as_an_empty_file(void)
{
    char folder[] = "/tmp/verbena-calls-XXXXXX", name[64], none[64];
    struct stat file;

    CHECK(mkdtemp(folder));
    snprintf(name, sizeof(name), "%s/a.pcapng", folder);
    snprintf(none, sizeof(none), "%s/none/a.pcapng", folder);
    strcpy(text, "nothing");
    CHECK_EQ(verbena_begin_capture(name, text, sizeof(text)), 0);
    CHECK_EQ(strcmp(text, "nothing"), 0);
    CHECK(stat(name, &file) == 0 && file.st_size == 4096);
    CHECK_EQ(verbena_begin_capture(name, text, sizeof(text)), 0);
    CHECK(stat(name, &file) == 0 && file.st_size == 4096);
    CHECK(truncate(name, 0) == 0 && truncate(name, 5000) == 0);
    CHECK_EQ(verbena_begin_capture(name, text, sizeof(text)), -EBADMSG);
    CHECK(strcmp(text, "nothing") != 0);
    CHECK(stat(name, &file) == 0 && file.st_size == 5000);
    CHECK_EQ(verbena_begin_capture(none, text, sizeof(text)), -ENOENT);
    CHECK_EQ(strcmp(text, strerror(ENOENT)), 0);
    CHECK(unlink(name) == 0 && rmdir(folder) == 0);
}

int main(void)
{
    in_process("direct", without_packets);
    in_process("auto", rules_for_what_goes_direct);
    in_process("auto", rules_before_the_connection);
    in_process("roce", with_packets);
    in_process("roce", what_is_held_leaves);
    in_process("roce", in_a_forked_child);
    RUN(a_capture_begins_as_an_empty_file);
    return 0;
}
