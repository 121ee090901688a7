/* SPDX-License-Identifier: MIT
 *
 * Which tables the registry accepts, and its messages for the others; plugins.
 */
#include "runtime/registry.h"

#include "support/expect.h"
#include "support/probe.h"
#include "support/scene.h"

#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    BACKENDS_MAX = 64
};

static ga_backend table; /* altered by a test; registered at most once in a process */

static ga_backend *fresh_table(void)
{
    table = probe_backend;
    return &table;
}

static size_t count_backends(void)
{
    size_t n = 0;
    while (ga_backend_at(n)) {
        n++;
    }
    return n;
}

/* ---- contents ----------------------------------------------------------------------------- */

Test(registry, built_in_backends)
{
    static const char *const names[] = {"system", "dl", "trace", "null", "fail"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        const ga_backend *found = ga_registry_find(names[i]);
        cr_assert_not_null(found, "%s", names[i]);
        cr_assert_str_eq(found->name, names[i]);
    }
    cr_assert_null(ga_backend_at(count_backends()));
    cr_assert_null(ga_backend_at(SIZE_MAX));
}

/* Built-in backends obey the rules for registered ones: an ABI, a size, one line of help. */
Test(registry, every_table_is_in_order)
{
    const ga_backend *b;
    for (size_t i = 0; (b = ga_backend_at(i)); i++) {
        cr_assert_eq(b->abi, GA_BACKEND_ABI, "%s", b->name);
        cr_assert_null(strchr(b->help, '\n'), "%s", b->name);
        for (size_t j = 0; j < b->option_count; j++) {
            const char *help = b->options[j].help;
            cr_assert_null(strchr(help, '\n'), "%s: %s", b->name, b->options[j].name);
            cr_assert_neq(help[strlen(help) - 1], '.', "%s: %s", b->name, b->options[j].name);
        }
    }
}

Test(registry, unknown_names_get_the_known_ones)
{
    char expected[512] = "unknown backend \"foo\"; known: ";
    const ga_backend *b;
    for (size_t i = 0; (b = ga_backend_at(i)); i++) {
        strcat(strcat(expected, i ? ", " : ""), b->name);
    }
    cr_assert_null(ga_registry_find("foo"));
    cr_assert_str_eq(ga_error_text(), expected, "%s", ga_error_text());
}

/* ---- registration ------------------------------------------------------------------------- */

Test(registry, a_good_table_is_found)
{
    size_t before = count_backends();
    assert_ok(ga_backend_register(fresh_table()));
    cr_assert_eq(ga_registry_find("probe"), &table);
    cr_assert_eq(count_backends(), before + 1);
    cr_assert_eq(ga_backend_at(before), &table);
}

Test(registry, null)
{
    assert_fails(ga_backend_register(NULL), GA_ERR_ARGUMENT, "expected a backend, got NULL");
}

Test(registry, another_abi)
{
    fresh_table()->abi = 2;
    assert_fails(ga_backend_register(&table), GA_ERR_ABI,
                 "a backend of ABI version 2: expected version 3");
    table.abi = 0;
    assert_fails(ga_backend_register(&table), GA_ERR_ABI,
                 "a backend of ABI version 0: expected version 3");
    cr_assert_null(ga_registry_find("probe"));
}

/* A table of another ABI is not read further than its first two numbers. */
Test(registry, another_abi_before_anything_else)
{
    static const ga_backend strange = {.abi = 7, .name = (const char *)1};
    assert_fails(ga_backend_register(&strange), GA_ERR_ABI,
                 "a backend of ABI version 7: expected version 3");
}

Test(registry, short_and_long_tables)
{
    char expected[128];
    fresh_table()->size = (uint32_t)(sizeof(ga_backend) - sizeof(void *));
    snprintf(expected, sizeof expected, "a backend whose table has %u bytes: expected at least %zu",
             table.size, sizeof(ga_backend));
    assert_fails(ga_backend_register(&table), GA_ERR_ABI, expected);
    table.size = (uint32_t)sizeof(ga_backend) + 8;
    assert_ok(ga_backend_register(&table));
}

#define BAD_NAME "expected a backend's name of up to 63 letters, digits, '-' and '_', got "

Test(registry, names)
{
    static const char *const bad[] = {"", "a b", "a/b", "a:b", "a,b", "a=b", "a\"", "\xc3\xa9"};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        char expected[128];
        snprintf(expected, sizeof expected, BAD_NAME "\"%s\"", bad[i]);
        fresh_table()->name = bad[i];
        assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT, expected);
    }
    fresh_table()->name = NULL;
    assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT, BAD_NAME "\"\"");
}

Test(registry, name_lengths)
{
    static char name[65];
    memset(name, 'n', 64);
    fresh_table()->name = name;
    assert_fails_with(ga_backend_register(&table), GA_ERR_ARGUMENT, BAD_NAME);
    name[63] = '\0';
    assert_ok(ga_backend_register(&table));
    cr_assert_eq(ga_registry_find(name), &table);
}

Test(registry, names_that_are_taken)
{
    fresh_table()->name = "system";
    assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT,
                 "system: a backend of that name exists");
    assert_ok(ga_backend_register(&probe_backend));
    assert_fails(ga_backend_register(&probe_backend), GA_ERR_ARGUMENT,
                 "probe: a backend of that name exists");
}

static void expect_lacking(const char *member)
{
    char expected[128];
    snprintf(expected, sizeof expected, "probe: expected the member `%s`, got NULL", member);
    assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT, expected);
    fresh_table();
}

Test(registry, required_members)
{
    fresh_table()->open = NULL;
    expect_lacking("open");
    table.close = NULL;
    expect_lacking("close");
    table.alloc = NULL;
    expect_lacking("alloc");
    table.free = NULL;
    expect_lacking("free");
    table.owns = NULL;
    expect_lacking("owns");
    table.help = NULL;
    expect_lacking("help");
    assert_ok(ga_backend_register(&table));
}

Test(registry, members_that_come_in_pairs)
{
    fresh_table()->alloc_on = NULL;
    assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT,
                 "probe: expected alloc_on and free_on both or neither");
    fresh_table()->free_on = NULL;
    assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT,
                 "probe: expected alloc_on and free_on both or neither");
}

Test(registry, places)
{
    fresh_table()->places = 0;
    assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT,
                 "probe: expected bits of the 3 places, got 0x0");
    table.places = 0x9;
    assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT,
                 "probe: expected bits of the 3 places, got 0x9");
}

Test(registry, option_tables)
{
    static const ga_option bad[] = {{"o", GA_OPTION_SIZE, "many", "h", NULL, 0, 0, false}};
    fresh_table()->options = NULL;
    assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT,
                 "probe: expected an option table of at most 32 rows");
    fresh_table()->options = bad;
    table.option_count = 1;
    cr_assert_eq(ga_backend_register(&table), GA_ERR_ARGUMENT, "%s", ga_error_text());
    cr_assert_str_eq(ga_error_text(),
                     "probe: o: expected a size such as 4096, 64K, 2M, 1G or 1T, got \"many\"");
    fresh_table()->bare_option = "nothing";
    assert_fails(ga_backend_register(&table), GA_ERR_ARGUMENT,
                 "probe: bare_option \"nothing\" is not in its option table");
}

Test(registry, is_full_one_day)
{
    static ga_backend many[BACKENDS_MAX + 1];
    static char names[BACKENDS_MAX + 1][16];
    size_t room = BACKENDS_MAX - count_backends();
    for (size_t i = 0; i <= room; i++) {
        snprintf(names[i], sizeof names[i], "b%zu", i);
        many[i] = probe_backend;
        many[i].name = names[i];
        ga_status expected = i < room ? GA_OK : GA_ERR_ARGUMENT;
        cr_assert_eq(ga_backend_register(&many[i]), expected, "%zu: %s", i, ga_error_text());
    }
    cr_assert_eq(count_backends(), BACKENDS_MAX);
    cr_assert_not_null(strstr(ga_error_text(), ": expected at most 64 backends"));
}

/* ---- threads ------------------------------------------------------------------------------ */

static void *register_probe(void *status)
{
    *(ga_status *)status = ga_backend_register(&probe_backend);
    return NULL;
}

Test(registry, one_of_many_threads_gets_the_name)
{
    enum {
        THREADS = 16
    };
    pthread_t threads[THREADS];
    ga_status statuses[THREADS];
    int good = 0;
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[i], NULL, register_probe, &statuses[i]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_join(threads[i], NULL);
        good += statuses[i] == GA_OK;
        cr_assert(statuses[i] == GA_OK || statuses[i] == GA_ERR_ARGUMENT);
    }
    cr_assert_eq(good, 1);
}

static bool begun, over; /* relaxed: read until they are seen */

static void *ask(void *unused)
{
    (void)unused;
    __atomic_store_n(&begun, true, __ATOMIC_RELAXED);
    while (!__atomic_load_n(&over, __ATOMIC_RELAXED)) {
        ga_registry_find("system");
    }
    return NULL;
}

static int ask_once(void *unused)
{
    (void)unused;
    alarm(10);
    return ga_registry_find("system") ? 0 : 1;
}

/* The child does not have the thread that was in the registry at the fork, but the copy of its
 * lock. This is about the registry's lock: a thread that has only begun may hold the lock of asan's
 * heap. */
Test(registry, a_forked_child_can_ask, .timeout = 60)
{
    pthread_t asking;
    cr_assert_eq(pthread_create(&asking, NULL, ask, NULL), 0);
    while (!__atomic_load_n(&begun, __ATOMIC_RELAXED)) {
        sched_yield();
    }
    for (int i = 0; i < 300; i++) {
        cr_assert_eq(scene_in_child(ask_once, NULL), 0);
    }
    __atomic_store_n(&over, true, __ATOMIC_RELAXED);
    pthread_join(asking, NULL);
}

static void *ask_first(void *unused)
{
    (void)unused;
    ga_registry_find("system");
    return NULL;
}

/* Prints nothing, and finds the built-in backends. */
static int ask_quietly(void *context)
{
    (void)context;
    alarm(10);
    unsetenv("GPUALLOC_PLUGINS");
    scene_capture_begin();
    size_t n = count_backends();
    const char *said = scene_capture_end();
    return n > 5 && !*said && scene_in_child(ask_once, NULL) == 0 ? 0 : 1;
}

/* Forks beside a thread that has registered the built-in backends and waits for a plugin, which is
 * a pipe without a writer. The children begin anew. */
Test(registry, a_child_of_a_fork_in_the_middle, .timeout = 60)
{
    char path[] = "/tmp/gpualloc-registry-XXXXXX";
    pthread_t asking;
    cr_assert_not_null(mkdtemp(path));
    char pipe[sizeof path + 8];
    snprintf(pipe, sizeof pipe, "%s/pipe", path);
    cr_assert_eq(mkfifo(pipe, 0600), 0);
    setenv("GPUALLOC_PLUGINS", pipe, 1);
    cr_assert_eq(pthread_create(&asking, NULL, ask_first, NULL), 0);
    for (int i = 0; i < 20; i++) {
        usleep(10000);
        cr_assert_eq(scene_in_child(ask_quietly, NULL), 0, "fork number %d", i);
    }
    scene_capture_begin();
    int end = open(pipe, O_WRONLY);
    cr_assert_neq(end, -1);
    close(end);
    pthread_join(asking, NULL);
    scene_capture_end(); /* the warning that it is not a library */
    unlink(pipe);
    rmdir(path);
}

/* ---- plugins: the variable is read when the registry is first used ------------------------- */

/* Name the plugins and return the messages of loading them. */
static const char *load(const char *list)
{
    setenv("GPUALLOC_PLUGINS", list, 1);
    scene_capture_begin();
    cr_assert_not_null(ga_backend_at(0));
    return scene_capture_end();
}

Test(registry, a_plugin_serves)
{
    cr_assert_str_eq(load(PLUGIN_GOOD), "");
    ga_heap *heap;
    void *block;
    assert_ok(ga_heap_open(&heap, GA_PLACE_HOST, 0, "plugged"));
    assert_ok(ga_alloc(heap, 100, 0, &block));
    memset(block, 1, 100);
    assert_ok(ga_free(heap, block));
    assert_ok(ga_heap_close(heap));
}

#define WITHOUT "; going on without it\n"

Test(registry, a_plugin_of_another_abi)
{
    cr_assert_str_eq(load(PLUGIN_WRONG_ABI),
                     "gpualloc: GPUALLOC_PLUGINS: \"" PLUGIN_WRONG_ABI
                     "\": a backend of ABI version 999: expected version 3" WITHOUT);
    cr_assert_null(ga_registry_find("future"));
}

Test(registry, a_plugin_whose_name_is_taken)
{
    cr_assert_str_eq(load(PLUGIN_TAKEN), "gpualloc: GPUALLOC_PLUGINS: \"" PLUGIN_TAKEN
                                         "\": system: a backend of that name exists" WITHOUT);
}

Test(registry, a_library_that_is_no_plugin)
{
    cr_assert_str_eq(load(PLUGIN_SILENT), "gpualloc: GPUALLOC_PLUGINS: \"" PLUGIN_SILENT
                                          "\": expected it to export ga_plugin_backend" WITHOUT);
}

Test(registry, a_plugin_that_is_missing)
{
    cr_assert_str_eq(
        load("/nowhere/plugin.so"),
        "gpualloc: GPUALLOC_PLUGINS: \"/nowhere/plugin.so\": /nowhere/plugin.so: cannot "
        "open shared object file: No such file or directory" WITHOUT);
}

Test(registry, a_file_that_is_no_library)
{
    scene_enter_folder();
    const char *path = scene_path("text.so");
    scene_write_file(path, "not a library", 13);
    char expected[512];
    snprintf(expected, sizeof expected, "gpualloc: GPUALLOC_PLUGINS: \"%s\": %s: file too short",
             path, path);
    const char *said = load(path);
    cr_assert_eq(strncmp(said, expected, strlen(expected)), 0, "%s", said);
    scene_leave_folder();
}

/* A bad plugin costs its own line and does not affect the others. */
Test(registry, plugins_in_a_row)
{
    const char *said = load(":/nowhere/a.so::" PLUGIN_WRONG_ABI ":" PLUGIN_GOOD ":");
    cr_assert_not_null(strstr(said, "/nowhere/a.so"), "%s", said);
    cr_assert_not_null(strstr(said, "999"), "%s", said);
    cr_assert_not_null(ga_registry_find("plugged"));
    cr_assert_not_null(ga_registry_find("system"));
}

Test(registry, a_path_that_is_too_long)
{
    static char list[8000];
    memset(list, 'x', 5000);
    strcpy(list + 5000, ":" PLUGIN_GOOD);
    cr_assert_str_eq(load(list),
                     "gpualloc: GPUALLOC_PLUGINS: \"...\": expected paths of at most 4095 "
                     "bytes" WITHOUT);
    cr_assert_not_null(ga_registry_find("plugged"));
}
