// SPDX-License-Identifier: Apache-2.0
/* What programs.py runs over an MPI: a ring of processes that send, add and write to each other. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { LARGE = 1 << 20 };

static void must(int is_so, const char *what)
{
    if (is_so)
        return;
    fprintf(stderr, "not so: %s\n", what);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static void send_around(int rank, int next, int before)
{
    int *mine = malloc(LARGE * sizeof(int)), *theirs = calloc(LARGE, sizeof(int)), from = -1;

    MPI_Sendrecv(&rank, 1, MPI_INT, next, 0, &from, 1, MPI_INT, before, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    must(from == before, "a short message is of the process before");
    for (int i = 0; i < LARGE; ++i)
        mine[i] = rank * 7 + i;
    MPI_Sendrecv(mine, LARGE, MPI_INT, next, 0, theirs, LARGE, MPI_INT, before, 0, MPI_COMM_WORLD,
                 MPI_STATUS_IGNORE);
    for (int i = 0; i < LARGE; ++i)
        must(theirs[i] == before * 7 + i, "a long message is as it was sent");
    free(mine);
    free(theirs);
}

static void write_around(int rank, int next, int before)
{
    int *memory = malloc(sizeof(int));
    MPI_Win window;

    *memory = -1;
    MPI_Win_create(memory, sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &window);
    MPI_Win_fence(0, window);
    MPI_Put(&rank, 1, MPI_INT, next, 0, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    must(*memory == before, "memory has what the process before has put there");
    MPI_Win_free(&window);
    free(memory);
}

int main(int argc, char **argv)
{
    int rank, size, sum = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    send_around(rank, (rank + 1) % size, (rank + size - 1) % size);
    write_around(rank, (rank + 1) % size, (rank + size - 1) % size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    must(sum == size * (size - 1) / 2, "the sum of all ranks");
    if (rank == 0)
        printf("%d processes have sent, written and added\n", size);
    MPI_Finalize();
    return 0;
}
