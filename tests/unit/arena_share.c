/* SPDX-License-Identifier: MIT
 *
 * Arenas that several devices and processes have, and the ends of these.
 */
#include "support/arena_scene.h"

#include <sys/wait.h>
#include <unistd.h>

/* ---- several devices, sharing ------------------------------------------------------------ */

Test(arena_share, peers_have_access)
{
    static const int peers[] = {2, 0, 2};
    vmm_driver_start(&(vmm_driver_options){.devices = 3});
    ga_arena *arena = open_with(WITH(on_device, .peers = peers, .peer_count = 3));
    assert_ok(ga_arena_grow(arena, 4 * MIB));
    cr_assert(vmm_driver_accessible(ga_arena_base(arena), 4 * MIB, 1 | 4));
    cr_assert(!vmm_driver_accessible(ga_arena_base(arena), 4 * MIB, 2));
    assert_ok(ga_arena_move(arena, 2048 * GIB));
    cr_assert(vmm_driver_accessible(ga_arena_base(arena), 4 * MIB, 1 | 4));
    ga_arena_close(arena);
    assert_nothing_left();
}

Test(arena_share, chunks_are_shared)
{
    ga_arena_share share;
    vmm_driver_start(NULL);
    ga_arena *ours = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FD));
    ga_arena *theirs =
        open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FD, .limit = 6 * MIB, .reserve = GIB));
    assert_fails(ga_arena_export(ours, 0, &share), GA_ERR_ARGUMENT,
                 "arena: no chunk 0: there are 0, counted from 0");
    assert_ok(ga_arena_grow(ours, 2 * MIB));
    assert_ok(ga_arena_grow(ours, 3 * MIB));
    for (uint64_t i = 0; i < 2; i++) {
        assert_ok(ga_arena_export(ours, i, &share));
        cr_assert_eq(share.offset, 2 * i * MIB);
        assert_ok(ga_arena_import(theirs, &share));
        close(share.fd);
    }
    write_marks(ours, 0, 4 * MIB);
    check_marks(theirs, 4 * MIB);
    share.size = 3 * MIB;
    assert_fails_with(ga_arena_import(theirs, &share), GA_ERR_ARGUMENT,
                      "arena: a chunk of 3145728 bytes: expected a multiple of 2097152");
    share.size = 4 * MIB;
    assert_fails_with(ga_arena_import(theirs, &share), GA_ERR_MEMORY,
                      "arena: a chunk of 4194304 bytes behind 4194304 is above the limit");
    share.size = 2 * MIB; /* and the file is closed */
    assert_fails_with(ga_arena_import(theirs, &share), GA_ERR_DEVICE,
                      "arena: cuMemImportFromShareableHandle: CUDA_ERROR_INVALID_VALUE");
    cr_assert_eq(ga_arena_size(theirs), 4 * MIB);
    ga_arena_close(ours);
    check_marks(theirs, 4 * MIB);
    ga_arena_close(theirs);
    assert_nothing_left();
}

Test(arena_share, shared_over_a_fabric)
{
    ga_arena_share share;
    vmm_driver_start(&(vmm_driver_options){.fabric = true, .no_fd = true});
    ga_arena *ours = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FABRIC));
    ga_arena *theirs = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FABRIC));
    assert_ok(ga_arena_grow(ours, 2 * MIB));
    assert_ok(ga_arena_export(ours, 0, &share));
    cr_assert_eq(share.fd, -1);
    assert_ok(ga_arena_import(theirs, &share));
    write_marks(ours, 0, 2 * MIB);
    check_marks(theirs, 2 * MIB);
    ga_arena_close(ours);
    ga_arena_close(theirs);
    assert_nothing_left();
}

Test(arena_share, shares_must_be_allowed_and_fit)
{
    ga_arena_share share = {.size = 2 * MIB, .fd = 0};
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(WITH(on_device, .reserve = 4 * MIB));
    assert_ok(ga_arena_grow(arena, 2 * MIB));
    assert_fails(ga_arena_export(arena, 0, &share), GA_ERR_UNSUPPORTED,
                 "arena: it was made without GA_ARENA_SHARE_FD and GA_ARENA_SHARE_FABRIC");
    cr_assert_eq(ga_arena_import(arena, &share), GA_ERR_UNSUPPORTED);
    ga_arena_close(arena);
    arena = open_with(WITH(on_device, .reserve = 4 * MIB, .flags = GA_ARENA_SHARE_FD));
    assert_ok(ga_arena_extend(arena, 8 * MIB));
    share.size = 6 * MIB;
    assert_fails(ga_arena_import(arena, &share), GA_ERR_CANNOT_GROW,
                 "arena: a chunk of 6291456 bytes does not fit behind 0 in one reservation");
    ga_arena_close(arena);
    assert_nothing_left();
}

/* In the child: the parent's arena can be closed without a call of the driver, and a driver of the
 * child's own imports the chunk. */
static int in_the_child(ga_arena *arena, const ga_arena_share *share)
{
    uint64_t calls = vmm_driver_calls(NULL);
    if (ga_arena_grow(arena, 8 * MIB) != GA_ERR_DEVICE || !strstr(ga_error_text(), "fork()")) {
        return 1;
    }
    ga_arena_close(arena);
    if (vmm_driver_calls(NULL) != calls) {
        return 2;
    }
    vmm_driver_start(NULL);
    ga_arena *own = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FD));
    if (ga_arena_import(own, share) != GA_OK) {
        return 3;
    }
    strcpy(ga_arena_base(own), "from the child");
    ga_arena_close(own);
    return 0;
}

Test(arena_share, a_child_takes_a_chunk)
{
    ga_arena_share share;
    int status = -1;
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(WITH(on_device, .flags = GA_ARENA_SHARE_FD));
    assert_ok(ga_arena_grow(arena, 2 * MIB));
    assert_ok(ga_arena_export(arena, 0, &share));
    pid_t child = fork();
    if (!child) {
        _exit(in_the_child(arena, &share));
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "wait status %x", (unsigned)status);
    cr_assert_str_eq(ga_arena_base(arena), "from the child");
    close(share.fd);
    ga_arena_close(arena);
    assert_nothing_left();
}

/* ---- ends -------------------------------------------------------------------------------- */

Test(arena_share, a_context_that_is_destroyed_first)
{
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(on_device);
    assert_ok(ga_arena_grow(arena, 4 * MIB));
    vmm_driver_destroy_context(0);
    assert_fails_with(ga_arena_grow(arena, 8 * MIB), GA_ERR_DEVICE,
                      "arena: cuCtxPushCurrent: CUDA_ERROR_CONTEXT_IS_DESTROYED");
    cr_assert_eq(ga_arena_size(arena), 4 * MIB);
    ga_arena_close(arena);
    vmm_driver_stop();
}

Test(arena_share, a_driver_that_has_shut_down)
{
    vmm_driver_start(NULL);
    ga_arena *arena = open_with(on_device);
    assert_ok(ga_arena_grow(arena, 4 * MIB));
    vmm_driver_shut_down();
    ga_arena_close(arena);
    vmm_driver_stop();
}

/* Criterion forks its children, so this test runs in a program with one thread. */
Test(arena_share, a_forked_child_has_a_host_arena_of_its_own)
{
    int status = -1;
    ga_arena *arena = open_with(on_host);
    assert_ok(ga_arena_grow(arena, MIB));
    strcpy(ga_arena_base(arena), "parent");
    pid_t child = fork();
    if (!child) {
        bool good = ga_arena_grow(arena, 2 * MIB) == GA_OK;
        strcpy(ga_arena_base(arena), "child");
        ga_arena_close(arena);
        _exit(good ? 0 : 1);
    }
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    cr_assert_str_eq(ga_arena_base(arena), "parent");
    cr_assert_eq(ga_arena_size(arena), MIB);
    ga_arena_close(arena);
}
