/* SPDX-License-Identifier: MIT
 *
 * One arena in several processes, on the host and on the stand-in's device: openers, growth,
 * counts, and processes that are killed or fork.
 */
#include "support/arena_members.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>

enum {
    HOST,
    DEVICE,
    PLACES
};

static const char *const place_names[] = {"host", "device"};

static char name[64]; /* of this test's publication: tests run at the same time */

static void start(void)
{
    snprintf(name, sizeof name, "@gpualloc-arena-%d", (int)getpid());
    vmm_driver_start(NULL);
}

static ga_arena *open_shared(int place)
{
    return open_with(WITH(place == HOST ? on_host : on_device,
                          .flags = GA_ARENA_SHARE_FD | GA_ARENA_EXACT, .reserve = GIB));
}

static ga_arena *publish(int place, uint64_t size)
{
    ga_arena *arena = open_shared(place);
    assert_ok(ga_arena_grow(arena, size));
    write_marks(arena, 0, size);
    assert_ok(ga_arena_publish(arena, name));
    return arena;
}

/* The publisher keeps a descriptor for each chunk from its first opening on. */
static int descriptors_after_one(void)
{
    ga_arena *opened;
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    ga_arena_close(opened);
    usleep(50000); /* the thread closes the connection */
    return descriptors_of(getpid());
}

static void assert_descriptors(int count)
{
    for (int i = 0; i < 100 && descriptors_of(getpid()) != count; i++) {
        usleep(10000);
    }
    cr_assert_eq(descriptors_of(getpid()), count);
}

/* ---- openers ------------------------------------------------------------------------ */

static void reader_sees_growth(int place)
{
    ga_arena *arena = publish(place, 4 * MIB);
    assert_openers(arena, 0, 0, true);
    member reader = member_start("join", "read", name, NULL);
    cr_assert_str_eq(reader.line, "4 MiB, 0 wrong, 1 readers, 0 writers, published");
    assert_openers(arena, 1, 0, true);
    assert_ok(ga_arena_grow(arena, 6 * MIB));
    assert_ok(ga_arena_grow(arena, 10 * MIB));
    write_marks(arena, 4 * MIB, 10 * MIB);
    member later = member_start("join", "write", name, NULL);
    cr_assert_str_eq(later.line, "10 MiB, 0 wrong, 1 readers, 1 writers, published");
    cr_assert_str_eq(member_asks(&reader, "count"),
                     "4 MiB, 0 wrong, 1 readers, 1 writers, published");
    cr_assert_str_eq(member_asks(&reader, "update"),
                     "10 MiB, 0 wrong, 1 readers, 1 writers, published");
    cr_assert_str_eq(member_asks(&reader, "update"),
                     "10 MiB, 0 wrong, 1 readers, 1 writers, published");
    member_asks(&later, "write");
    cr_assert_str_eq(base_of(arena), "written");
    cr_assert_str_eq(member_asks(&reader, "count"),
                     "10 MiB, 1 wrong, 1 readers, 1 writers, published");
    member_ends(&reader);
    assert_openers(arena, 0, 1, true);
    member_ends(&later);
    assert_openers(arena, 0, 0, true);
    ga_arena_close(arena);
}

Test(arena_publish, readers_see_growth)
{
    start();
    for (int place = 0; place < PLACES; place++) {
        reader_sees_growth(place);
    }
    assert_nothing_left();
}

Test(arena_publish, the_publisher_alone_changes_the_size)
{
    start();
    for (int place = 0; place < PLACES; place++) {
        ga_arena_share share = {.size = 2 * MIB, .fd = 0};
        ga_arena *opened;
        ga_arena *arena = publish(place, 4 * MIB);
        assert_ok(ga_arena_grow(arena, 8 * MIB));
        assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ_WRITE));
        cr_assert_neq(ga_arena_base(opened), ga_arena_base(arena));
        assert_ok(ga_arena_grow(opened, 8 * MIB));
        assert_says(ga_arena_grow(opened, 10 * MIB), GA_ERR_UNSUPPORTED,
                    "its publisher alone changes its size");
        assert_says(ga_arena_shrink(opened, 0), GA_ERR_UNSUPPORTED, "its publisher alone");
        assert_says(ga_arena_import(opened, &share), GA_ERR_UNSUPPORTED, "its publisher");
        assert_fails(ga_arena_publish(opened, "@gpualloc-arena-other"), GA_ERR_UNSUPPORTED,
                     "arena: it was opened from its publisher's process");
        assert_fails(ga_arena_shrink(arena, 0), GA_ERR_UNSUPPORTED,
                     "arena: it is open 1 times elsewhere; expected no opening");
        assert_ok(ga_arena_shrink(arena, 8 * MIB));
        assert_ok(ga_arena_move(opened, 64 * GIB)); /* the opener's own addresses */
        assert_ok(ga_arena_move(arena, 64 * GIB));
        write_marks(arena, 0, 8 * MIB);
        check_marks(opened, 8 * MIB);
        ga_arena_close(opened);
        assert_ok(ga_arena_shrink(arena, 4 * MIB));
        cr_assert_eq(ga_arena_size(arena), 4 * MIB);
        assert_ok(ga_arena_grow(arena, 6 * MIB));
        assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
        check_marks(opened, 4 * MIB);
        cr_assert_eq(ga_arena_size(opened), 6 * MIB);
        ga_arena_close(opened);
        ga_arena_close(arena);
    }
    assert_nothing_left();
}

Test(arena_publish, an_opener_follows_an_extension)
{
    start();
    for (int place = 0; place < PLACES; place++) {
        ga_arena *opened;
        ga_arena *arena = open_with(WITH(place == HOST ? on_host : on_device, .reserve = 4 * MIB,
                                         .flags = GA_ARENA_SHARE_FD | GA_ARENA_EXACT));
        assert_ok(ga_arena_publish(arena, name)); /* empty */
        assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
        cr_assert_eq(ga_arena_size(opened), 0);
        assert_ok(ga_arena_move(arena, 16 * MIB));
        assert_ok(ga_arena_grow(arena, 2 * MIB));
        assert_ok(ga_arena_grow(arena, 4 * MIB));
        write_marks(arena, 0, 4 * MIB);
        ga_status status = ga_arena_update(opened);
        cr_assert(status == GA_OK || status == GA_ERR_CANNOT_GROW);
        ga_arena_close(opened);
        assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
        cr_assert_geq(ga_arena_reserved(opened), 16 * MIB);
        check_marks(opened, 4 * MIB);
        assert_ok(ga_arena_grow(arena, 12 * MIB));
        assert_ok(ga_arena_update(opened));
        cr_assert_eq(ga_arena_size(opened), 12 * MIB);
        ga_arena_close(opened);
        ga_arena_close(arena);
    }
    assert_nothing_left();
}

/* The stand-in's mappings fault as a device's do; tests/device has the real one. */
Test(arena_publish, a_write_to_read_only_memory_ends_its_process_alone)
{
    start();
    for (int place = 0; place < PLACES; place++) {
        ga_arena *arena = publish(place, 4 * MIB);
        member reader = member_start("join", "read", name, NULL);
        member other = member_start("join", "read", name, NULL);
        cr_assert_str_eq(member_asks(&reader, "write"), "");
        int status = member_wait(&reader);
        cr_assert(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
        check_marks(arena, 4 * MIB);
        assert_openers(arena, 1, 0, true);
        cr_assert_str_eq(member_asks(&other, "count"),
                         "4 MiB, 0 wrong, 1 readers, 0 writers, published");
        member_ends(&other);
        ga_arena_close(arena);
    }
    assert_nothing_left();
}

/* Count the process's descriptors of chunks by their access: 0 reading, 2 both. */
static void count_chunks(pid_t process, int counts[3])
{
    char path[64], target[64] = "", line[256];
    for (int fd = 3; fd < 64; fd++) {
        unsigned flags = 0;
        snprintf(path, sizeof path, "/proc/%d/fd/%d", (int)process, fd);
        if (readlink(path, target, sizeof target) < 0 ||
            strncmp(target, "/memfd:gpualloc ", 16) != 0) {
            continue;
        }
        snprintf(path, sizeof path, "/proc/%d/fdinfo/%d", (int)process, fd);
        FILE *facts = fopen(path, "r");
        while (facts && fgets(line, sizeof line, facts) && sscanf(line, "flags: %o", &flags) != 1) {
        }
        cr_assert_not_null(facts);
        fclose(facts);
        counts[flags & O_ACCMODE]++;
    }
}

/* The descriptors themselves do not let a reader write. */
Test(arena_publish, a_reader_has_no_descriptor_to_write_by)
{
    int of_reader[3] = {0}, of_writer[3] = {0};
    start();
    ga_arena *arena = publish(HOST, 2 * MIB);
    assert_ok(ga_arena_grow(arena, 4 * MIB));
    member reader = member_start("join", "read", name, NULL);
    member writer = member_start("join", "write", name, NULL);
    count_chunks(reader.process, of_reader);
    count_chunks(writer.process, of_writer);
    cr_assert(of_reader[O_RDONLY] == 2 && of_reader[O_RDWR] == 0);
    cr_assert(of_writer[O_RDONLY] == 0 && of_writer[O_RDWR] == 2);
    member_ends(&reader);
    member_ends(&writer);
    ga_arena_close(arena);
    vmm_driver_stop();
}

Test(arena_publish, the_device_is_the_same_by_any_ordinal)
{
    start();
    vmm_driver_start(&(vmm_driver_options){.devices = 3});
    ga_arena *arena =
        open_with(WITH(on_device, .device = 1, .flags = GA_ARENA_SHARE_FD, .reserve = GIB));
    assert_ok(ga_arena_grow(arena, 2 * MIB));
    write_marks(arena, 0, 2 * MIB);
    assert_ok(ga_arena_publish(arena, name));
    member reader = member_start("join", "read", name, "1"); /* its only device is our second */
    cr_assert_str_eq(reader.line, "2 MiB, 0 wrong, 1 readers, 0 writers, published");
    member_ends(&reader);
    member blind = member_start("join", "read", name, "2");
    cr_assert_str_eq(blind.line, "3 arena: the publisher's device 1 is none of the 1 devices that "
                                 "this process may use");
    member_wait(&blind);
    assert_openers(arena, 0, 0, true);
    ga_arena_close(arena);
    assert_nothing_left();
}

/* ---- processes that are killed ------------------------------------------------------ */

Test(arena_publish, a_killed_opener_is_not_counted)
{
    start();
    for (int place = 0; place < PLACES; place++) {
        ga_arena *arena = publish(place, 4 * MIB);
        member reader = member_start("join", "read", name, NULL);
        member writer = member_start("join", "write", name, NULL);
        assert_openers(arena, 1, 1, true);
        member_is_killed(&writer);
        assert_openers(arena, 1, 0, true);
        cr_assert_str_eq(member_asks(&reader, "count"),
                         "4 MiB, 0 wrong, 1 readers, 0 writers, published");
        member_is_killed(&reader);
        assert_openers(arena, 0, 0, true);
        assert_ok(ga_arena_shrink(arena, 0));
        ga_arena_close(arena);
    }
    assert_nothing_left();
}

static void outlive_the_publisher(const char *place)
{
    ga_arena *opened, *late;
    member publisher = member_start("publish", place, name, "4");
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    member reader = member_start("join", "read", name, NULL);
    assert_openers(opened, 2, 0, true);
    member_is_killed(&publisher);
    check_marks(opened, 4 * MIB);
    assert_openers(opened, 2, 0, false);
    cr_assert_str_eq(member_asks(&reader, "count"),
                     "4 MiB, 0 wrong, 2 readers, 0 writers, not published");
    member_is_killed(&reader);
    assert_openers(opened, 1, 0, false);
    assert_says(ga_arena_join(&late, name, GA_ARENA_READ), GA_ERR_IO,
                name[0] == '@' ? "it has ended, or has not begun" : "the one that did has ended");
    cr_assert_null(late);
    assert_says(ga_arena_update(opened), GA_ERR_IO, "no process listens at");
    publisher = member_start("publish", place, name, "2"); /* takes the name over */
    cr_assert_str_eq(publisher.line, "2 MiB, 0 wrong, 0 readers, 0 writers, published");
    assert_says(ga_arena_update(opened), GA_ERR_IO, "names another arena now");
    assert_openers(opened, 1, 0, false);
    check_marks(opened, 4 * MIB);
    ga_arena_close(opened);
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    cr_assert_eq(ga_arena_size(opened), 2 * MIB);
    ga_arena_close(opened);
    member_ends(&publisher);
}

Test(arena_publish, memory_outlives_a_killed_publisher)
{
    start();
    for (int place = 0; place < PLACES; place++) {
        outlive_the_publisher(place_names[place]);
        snprintf(name, sizeof name, "/tmp/gpualloc-arena-%d", (int)getpid());
        outlive_the_publisher(place_names[place]);
        cr_assert_neq(access(name, F_OK), 0, "the path stays");
        start();
    }
    assert_nothing_left();
}

Test(arena_publish, openers_killed_in_the_middle)
{
    start();
    for (int place = 0; place < PLACES; place++) {
        ga_arena *arena = publish(place, 4 * MIB);
        int descriptors = descriptors_after_one();
        for (unsigned i = 0; i < 60; i++) {
            member m = member_start("churn", i % 2 ? "read" : "write", name, NULL);
            usleep(i * 137 % 4000);
            member_is_killed(&m);
            assert_openers(arena, 0, 0, true);
        }
        member reader = member_start("join", "read", name, NULL);
        cr_assert_str_eq(reader.line, "4 MiB, 0 wrong, 1 readers, 0 writers, published");
        member_ends(&reader);
        assert_descriptors(descriptors);
        ga_arena_close(arena);
    }
    assert_nothing_left();
}

/* An opener gets all of the arena, or an error. */
Test(arena_publish, a_publisher_killed_in_the_middle)
{
    start();
    for (unsigned i = 0; i < 40; i++) {
        ga_arena *opened;
        member publisher = member_start("publish", place_names[i % 2], name, "8");
        if (fork() == 0) {
            usleep(i * 97 % 1500);
            kill(publisher.process, SIGKILL);
            _exit(0);
        }
        ga_status status = GA_OK;
        while (status == GA_OK) {
            status = ga_arena_join(&opened, name, GA_ARENA_READ);
            if (status == GA_OK) {
                check_marks(opened, 8 * MIB);
                ga_arena_close(opened);
            }
        }
        cr_assert_eq(status, GA_ERR_IO, "%s", ga_error_text());
        member_wait(&publisher);
        wait(NULL);
    }
    assert_nothing_left();
}

/* ---- fork --------------------------------------------------------------------------- */

static void wait_for_openers(ga_arena *arena, uint64_t readers, bool published, int seconds)
{
    ga_arena_openers openers = {0};
    for (int i = 0; i < 100 * seconds; i++) {
        assert_ok(ga_arena_count_openers(arena, &openers));
        if (openers.readers == readers && openers.published == published) {
            break;
        }
        usleep(10000);
    }
    cr_assert(openers.readers == readers && openers.published == published);
}

/* The child of an opener shares its entry. */
Test(arena_publish, a_forked_child_of_an_opener_counts_with_it)
{
    start();
    ga_arena *arena = publish(HOST, 2 * MIB);
    member reader = member_start("join", "read", name, NULL);
    member_asks(&reader, "fork");
    assert_openers(arena, 1, 0, true);
    member_is_killed(&reader);
    assert_openers(arena, 1, 0, true); /* the child may still read */
    wait_for_openers(arena, 0, true, 20);
    ga_arena_close(arena);
    vmm_driver_stop();
}

/* Its name ends with the parent, though the child has inherited all descriptors. */
Test(arena_publish, a_forked_child_does_not_publish)
{
    start();
    ga_arena *opened, *late;
    member publisher = member_start("publish", "host", name, "2");
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    member_asks(&publisher, "fork");
    member_is_killed(&publisher);
    wait_for_openers(opened, 1, false, 2); /* the child may only begin now; it stays for 3 s */
    assert_says(ga_arena_join(&late, name, GA_ARENA_READ), GA_ERR_IO, "it has ended");
    check_marks(opened, 2 * MIB);
    ga_arena_close(opened);
    vmm_driver_stop();
}

/* Nor does it keep the memory, of which its parent has descriptors for openers. */
Test(arena_publish, a_forked_child_keeps_no_memory)
{
    int status = -1;
    start();
    ga_arena *arena = publish(DEVICE, 2 * MIB);
    int descriptors = descriptors_after_one();
    pid_t child = fork();
    if (!child) { /* without the name's socket, the openers' file and the chunk */
        _exit(descriptors_of(getpid()) == descriptors - 3 ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status %x", (unsigned)status);
    ga_arena_close(arena);
    vmm_driver_stop();
}

Test(arena_publish, a_forked_child_uses_its_arenas)
{
    int status = -1;
    start();
    char own[80];
    snprintf(own, sizeof own, "%s-child", name);
    ga_arena *opened;
    ga_arena *arena = publish(HOST, 2 * MIB);
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    pid_t child = fork();
    if (!child) {
        ga_arena *again;
        ga_arena_openers openers = {.published = true};
        bool good = ga_arena_update(opened) == GA_OK && /* of the parent */
                    ga_arena_count_openers(arena, &openers) == GA_OK && !openers.published &&
                    ga_arena_publish(arena, own) == GA_OK &&
                    ga_arena_join(&again, own, GA_ARENA_READ_WRITE) == GA_OK &&
                    ga_arena_size(again) == 2 * MIB;
        if (good) {
            strcpy(ga_arena_base(again), "from the child");
            ga_arena_close(again);
        }
        ga_arena_close(opened);
        ga_arena_close(arena);
        _exit(good ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status %x", (unsigned)status);
    cr_assert_str_eq(ga_arena_base(arena), "from the child");
    assert_openers(arena, 1, 0, true);
    ga_arena_close(opened);
    ga_arena_close(arena);
    vmm_driver_stop();
}

/* ---- many --------------------------------------------------------------------------- */

Test(arena_publish, many_openers_at_once, .timeout = 120)
{
    enum {
        MANY = 40
    };
    member members[MANY];
    start();
    ga_arena *arena = publish(DEVICE, 4 * MIB);
    for (int i = 0; i < MANY; i++) {
        members[i] = member_begin("join", i % 4 ? "read" : "write", name, NULL);
    }
    for (int i = 0; i < MANY; i++) {
        cr_assert_eq(strncmp(member_hears(&members[i]), "4 MiB, 0 wrong, ", 16), 0, "%s",
                     members[i].line);
    }
    assert_openers(arena, 30, 10, true);
    for (int i = 0; i < MANY; i++) {
        kill(members[i].process, SIGKILL);
    }
    for (int i = 0; i < MANY; i++) {
        member_wait(&members[i]);
    }
    assert_openers(arena, 0, 0, true);
    ga_arena_close(arena);
    assert_nothing_left();
}

static void *open_and_close(void *context)
{
    for (int i = 0; i < 125; i++) {
        ga_arena *opened;
        ga_arena_openers openers;
        assert_ok(ga_arena_join(&opened, name, i % 2 ? GA_ARENA_READ : GA_ARENA_READ_WRITE));
        assert_ok(ga_arena_update(opened));
        assert_ok(ga_arena_count_openers(opened, &openers));
        cr_assert(openers.readers + openers.writers >= 1 && openers.published);
        ga_arena_close(opened);
    }
    return context;
}

/* Eight threads open while the publisher grows. */
Test(arena_publish, a_thousand_openings_leak_nothing, .timeout = 120)
{
    pthread_t threads[8];
    start();
    for (int place = 0; place < PLACES; place++) {
        ga_arena *arena = publish(place, 2 * MIB);
        int descriptors = descriptors_after_one();
        vmm_driver_counts before = vmm_driver_count();
        for (int i = 0; i < 8; i++) {
            pthread_create(&threads[i], NULL, open_and_close, NULL);
        }
        for (uint64_t size = 4; size <= 16; size += 2) {
            usleep(2000);
            assert_ok(ga_arena_grow(arena, size * MIB));
        }
        for (int i = 0; i < 8; i++) {
            pthread_join(threads[i], NULL);
        }
        assert_openers(arena, 0, 0, true);
        assert_ok(ga_arena_shrink(arena, 2 * MIB));
        assert_descriptors(descriptors);
        cr_assert_eq(vmm_driver_count().chunks, before.chunks);
        cr_assert_eq(vmm_driver_count().ranges, before.ranges);
        ga_arena_close(arena);
    }
    assert_nothing_left();
}

/* Publishing again and again, and its end with openers. */
Test(arena_publish, a_name_is_published_again)
{
    ga_arena *opened, *late;
    start();
    ga_arena *arena = publish(DEVICE, 2 * MIB);
    int descriptors = descriptors_of(getpid());
    assert_ok(ga_arena_join(&opened, name, GA_ARENA_READ));
    for (int i = 0; i < 200; i++) {
        ga_arena_unpublish(arena);
        ga_arena_unpublish(arena);
        assert_openers(opened, 1, 0, false);
        cr_assert_eq(ga_arena_join(&late, name, GA_ARENA_READ), GA_ERR_IO);
        assert_ok(ga_arena_publish(arena, name));
        assert_openers(opened, 1, 0, true);
        assert_ok(ga_arena_update(opened));
    }
    assert_says(ga_arena_shrink(arena, 0), GA_ERR_UNSUPPORTED, "it is open 1 times");
    ga_arena_close(arena);
    assert_openers(opened, 1, 0, false);
    check_marks(opened, 2 * MIB);
    ga_arena_close(opened);
    cr_assert_lt(descriptors_of(getpid()), descriptors);
    assert_nothing_left();
}
