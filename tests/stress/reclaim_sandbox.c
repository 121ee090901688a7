/* SPDX-License-Identifier: MIT
 *
 * A process that enters a sandbox which refuses membarrier(2) once its domains are open, by a real
 * seccomp filter: hazard heaps and maps continue to free, also while another thread waits and a
 * third one reads all the time, and no protected object is freed. Skipped where filters are not
 * permitted, or membarrier was refused before.
 */
#include <gpualloc/lfht.h>
#include <gpualloc/reclaim.h>

#include "stress.h"

#include <errno.h>
#include <linux/filter.h>
#include <linux/membarrier.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

enum {
    ROUNDS = 200000,
    SIZE = 1000
};

static ga_heap *heap;
static ga_domain *domain;
static uintptr_t location; /* a block; one thread reads it, the other replaces it */
static sem_t waiting, over;
static bool ended; /* relaxed: the readers see it eventually */

static void *take(unsigned char byte)
{
    void *block;
    NEED(ga_alloc(heap, SIZE, 0, &block) == GA_OK);
    memset(block, byte, SIZE);
    return block;
}

static void *wait_with_a_slot(void *block)
{
    ga_hazards *mine;
    NEED(ga_domain_join(domain, &mine) == GA_OK);
    ga_hazard_set(mine, 0, block);
    sem_post(&waiting);
    sem_wait(&over);
    NEED(*(unsigned char *)block == 7);
    ga_hazard_clear(mine, 0);
    return NULL;
}

/* All bytes of a protected block are the same. */
static void *read_on(void *unused)
{
    ga_hazards *mine;
    (void)unused;
    NEED(ga_domain_join(domain, &mine) == GA_OK);
    sem_post(&waiting);
    while (!__atomic_load_n(&ended, __ATOMIC_RELAXED)) { /* relaxed: seen eventually */
        const volatile unsigned char *block =
            (const volatile unsigned char *)ga_hazard_protect(mine, 1, &location, 0);
        unsigned char first = block[SIZE / 2];
        for (int i = 0; i < 20; i++) {
            NEED(block[SIZE - 1 - i] == first);
        }
        ga_hazard_clear(mine, 1);
    }
    return NULL;
}

static bool enter_sandbox(void)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_membarrier, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
    struct sock_fprog program = {.len = sizeof code / sizeof *code, .filter = code};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

static void change_map(ga_lfht *map)
{
    ga_lfht_stats stats;
    for (uint64_t key = 0; key < ROUNDS; key++) {
        NEED(ga_lfht_insert(map, key, key, NULL) == GA_OK);
        NEED(ga_lfht_remove(map, key, NULL) == GA_OK);
    }
    ga_lfht_get_stats(map, &stats);
    NEED(stats.bound > 0 && stats.retired - stats.freed <= stats.bound);
}

static void replace_blocks(void)
{
    ga_domain_stats stats;
    for (int i = 0; i < ROUNDS; i++) {
        void *old = (void *)__atomic_exchange_n(&location, (uintptr_t)take((unsigned char)i),
                                                __ATOMIC_ACQ_REL); /* Pairs with read_on(). */
        NEED(ga_free(heap, old) == GA_OK);
    }
    NEED(ga_domain_drain(domain) == GA_OK);
    ga_domain_get_stats(domain, &stats);
    NEED(stats.seq_cst && stats.bound > 0 && stats.pending <= 2);
    NEED(stats.pending_bytes <= stats.bound_bytes + stats.memberships * 2 * SIZE);
}

static bool is_refused(void)
{
    return syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0;
}

/* The threads have used their slots before the sandbox is entered. */
static void begin_threads(pthread_t *threads)
{
    void *held = take(7);
    location = (uintptr_t)take(1);
    sem_init(&waiting, 0, 0);
    sem_init(&over, 0, 0);
    NEED(pthread_create(&threads[0], NULL, wait_with_a_slot, held) == 0);
    NEED(pthread_create(&threads[1], NULL, read_on, NULL) == 0);
    sem_wait(&waiting);
    sem_wait(&waiting);
    NEED(ga_free(heap, held) == GA_OK);
}

static void end_threads(pthread_t *threads)
{
    __atomic_store_n(&ended, true, __ATOMIC_RELAXED); /* relaxed: seen eventually */
    sem_post(&over);
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
}

int main(int argc, char **argv)
{
    ga_lfht *map;
    pthread_t threads[2];
    stress_begin(argc, argv);
    heap = stress_open("hazard/slab:check=full");
    NEED(ga_heap_domain(heap, &domain) == GA_OK);
    NEED(ga_lfht_open(&map, NULL) == GA_OK);
    begin_threads(threads);
    change_map(map);
    bool sandboxed = !is_refused() && enter_sandbox() && is_refused();
    if (sandboxed) {
        replace_blocks();
        change_map(map);
    }
    end_threads(threads);
    NEED(ga_lfht_close(map) == GA_OK);
    NEED(ga_free(heap, (void *)location) == GA_OK);
    NEED(ga_heap_close(heap) == GA_OK);
    return sandboxed ? 0 : STRESS_SKIP;
}
