/* SPDX-License-Identifier: MIT
 *
 * Files of sharded tables.
 */
#include "support/sharded_scene.h"
#include "support/slabhash_scene.h"

#include <stdio.h>

typedef struct saving {
    world *w;
    const char *path;
    ga_status statuses[RANKS_MOST];
    bool loads;
} saving;

static void save_one(ranks *all, uint32_t rank, void *context)
{
    saving *s = context;
    (void)all;
    s->statuses[rank] = s->loads ? ga_slabhash_sharded_load(s->w->tables[rank], s->path, NULL)
                                 : ga_slabhash_sharded_save(s->w->tables[rank], s->path, NULL);
}

static void remove_files(const char *path, uint32_t ranks_saved)
{
    char name[128];
    for (uint32_t i = 0; i < ranks_saved; i++) {
        snprintf(name, sizeof name, "%s.%u-of-%u", path, i, ranks_saved);
        remove(name);
    }
}

static void load_into(const char *path, ga_slabhash_mode mode, uint32_t count, uint64_t keys,
                      ga_status expected)
{
    ranks all;
    world w = {.mode = mode};
    saving s = {.w = &w, .path = path, .loads = true};
    begin(&all, &w, count);
    ranks_run(&all, save_one, &s);
    for (uint32_t i = 0; i < count; i++) {
        cr_assert_eq(s.statuses[i], expected, "%s", ga_error_text());
    }
    expect_size(&all, &w, keys);
    end(&all, &w);
}

Test(slabhash_sharded_files, any_number_of_ranks)
{
    static const ga_slabhash_mode modes[] = {GA_SLABHASH_SET32, GA_SLABHASH_MAP32,
                                             GA_SLABHASH_MAP64};
    for (size_t i = 0; i < 3; i++) {
        ranks all;
        world w = {.mode = modes[i]};
        calls c;
        char made[64], path[80], name[128];
        saving s = {.w = &w, .path = path};
        make_path(made);
        snprintf(path, sizeof path, "%s[1]*", made); /* that is no pattern */
        begin(&all, &w, 3);
        uint64_t keys = deal_keys(&all, w.mode);
        run_all(&all, &w, GA_SLABHASH_INSERT, &c);
        ranks_run(&all, save_one, &s);
        for (uint32_t rank = 0; rank < 3; rank++) {
            assert_ok(s.statuses[rank]);
        }
        end(&all, &w);
        for (uint32_t count = 1; count <= 5; count++) {
            load_into(path, modes[i], count, keys, GA_OK);
        }
        snprintf(name, sizeof name, "%s.1-of-3", path);
        remove(name);
        load_into(path, modes[i], 2, 0, GA_ERR_IO);
        remove_files(path, 3);
        load_into(path, modes[i], 2, 0, GA_ERR_IO);
        remove(made);
    }
}
