/* SPDX-License-Identifier: MIT
 *
 * The hooks of a backend around fork(2) and at the end of threads.
 */
#include <gpualloc/backend.h>

#include "platform/thread.h"
#include "support/expect.h"
#include "support/probe.h"
#include "support/scene.h"

#include <pthread.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static ga_heap *heap;

static void open_probe(const char *spec)
{
    assert_ok(ga_backend_register(&probe_backend));
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, spec));
    probe_story[0] = '\0';
}

/* ---- fork --------------------------------------------------------------------------------- */

/* The child reports through its exit status. */
static int check_child(void *unused)
{
    (void)unused;
    void *block;
    bool told = strcmp(probe_story, "pa pb Ca Cb") == 0 || strcmp(probe_story, "pa pb Cb Ca") == 0;
    bool counted = probe.fork_prepare == 2 && probe.fork_child == 2 && probe.fork_parent == 0;
    bool serves = ga_alloc(heap, 100, 0, &block) == GA_OK && ga_free(heap, block) == GA_OK;
    return !told ? 1 : !counted ? 2 : !serves ? 3 : 0;
}

/* Every layer is notified, and one that holds a lock during a call to its parent can take it
 * first. */
Test(hooks, forks_reach_every_layer)
{
    open_probe("probe:tag=a/probe:tag=b");
    cr_assert_eq(scene_in_child(check_child, NULL), 0);
    cr_assert_eq(probe.fork_prepare, 2);
    cr_assert_eq(probe.fork_parent, 2);
    cr_assert_eq(probe.fork_child, 0);
    cr_assert_eq(strncmp(probe_story, "pa pb P", 7), 0, "%s", probe_story);
    assert_ok(ga_heap_close(heap));
}

static int do_nothing(void *unused)
{
    (void)unused;
    return 0;
}

Test(hooks, a_closed_heap_is_left_alone)
{
    open_probe("probe");
    assert_ok(ga_heap_close(heap));
    cr_assert_eq(scene_in_child(do_nothing, NULL), 0);
    cr_assert_eq(probe.fork_prepare + probe.fork_parent, 0);
}

static int fork_again(void *unused)
{
    (void)unused;
    return scene_in_child(check_child, NULL) == 1 && probe.fork_prepare == 4 ? 0 : 1;
}

/* A child may fork, and open and close heaps: no lock is left taken. */
Test(hooks, forks_of_forks)
{
    open_probe("probe:tag=a/probe:tag=b");
    cr_assert_eq(scene_in_child(fork_again, NULL), 0);
    assert_ok(ga_heap_close(heap));
}

/* ---- threads ------------------------------------------------------------------------------ */

static void *use_heap(void *unused)
{
    void *block;
    (void)unused;
    if (ga_alloc(heap, 10, 0, &block) == GA_OK) {
        ga_free(heap, block);
    }
    return NULL;
}

static void *use_nothing(void *unused)
{
    return unused;
}

static void run_thread(void *(*body)(void *))
{
    pthread_t thread;
    cr_assert_eq(pthread_create(&thread, NULL, body, NULL), 0);
    pthread_join(thread, NULL);
}

Test(hooks, the_end_of_a_thread_reaches_every_layer)
{
    open_probe("probe/probe");
    run_thread(use_heap);
    cr_assert_eq(probe.thread_exit, 2);
    run_thread(use_heap);
    cr_assert_eq(probe.thread_exit, 4);
    assert_ok(ga_heap_close(heap));
}

Test(hooks, a_thread_that_used_no_heap_says_nothing)
{
    open_probe("probe");
    run_thread(use_nothing);
    cr_assert_eq(probe.thread_exit, 0);
    assert_ok(ga_heap_close(heap));
}

Test(hooks, a_thread_outlives_its_heap)
{
    open_probe("probe");
    use_heap(NULL);
    assert_ok(ga_heap_close(heap));
    run_thread(use_nothing);
    cr_assert_eq(probe.thread_exit, 0);
}

/* ---- in the last destructor of a thread ---------------------------------------------------- */

static pthread_key_t late_key;
static int late_runs;

/* Registers itself again each time, until the library's own destructor has run. */
static void late_destructor(void *unused)
{
    use_heap(unused);
    if (++late_runs < 3) {
        pthread_setspecific(late_key, &late_runs);
    }
}

static void *use_heap_late(void *unused)
{
    pthread_setspecific(late_key, &late_runs);
    return use_heap(unused);
}

Test(hooks, memory_in_late_destructors)
{
    ga_stats stats;
    open_probe("probe");
    pthread_key_create(&late_key, late_destructor);
    run_thread(use_heap_late);
    cr_assert_eq(late_runs, 3);
    cr_assert_eq(probe.thread_exit, 1, "the end is told once");
    assert_ok(ga_heap_stats(heap, &stats));
    cr_assert_eq(stats.allocs, 4);
    cr_assert_eq(stats.frees, 4);
    assert_ok(ga_heap_close(heap));
}

/* ---- thread ids --------------------------------------------------------------------------- */

static int check_id(void *parent_id)
{
    return ga_thread_id() == (uint32_t)syscall(SYS_gettid) &&
                   ga_thread_id() != *(uint32_t *)parent_id
               ? 0
               : 1;
}

Test(hooks, thread_ids_are_the_kernel_s)
{
    uint32_t id = ga_thread_id();
    cr_assert_eq(id, (uint32_t)syscall(SYS_gettid));
    cr_assert_eq(ga_thread_id(), id);
    cr_assert_eq(scene_in_child(check_id, &id), 0, "in a forked child too");
}

static void ask_id(void)
{
    ga_thread_id();
}

Test(hooks, a_fork_that_began_before_the_first_thread_id)
{
    uint32_t before = (uint32_t)getpid();
    cr_assert_eq(pthread_atfork(ask_id, NULL, NULL), 0);
    cr_assert_eq(scene_in_child(check_id, &before), 0);
}

static int hooked;

static void hook(void)
{
    hooked++;
}

Test(hooks, one_hook_runs_once)
{
    open_probe("probe");
    ga_thread_on_exit(hook);
    ga_thread_on_exit(hook);
    run_thread(use_heap);
    cr_assert_eq(hooked, 1);
    assert_ok(ga_heap_close(heap));
}
