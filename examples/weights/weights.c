/* SPDX-License-Identifier: MIT
 *
 * One copy of a file in memory for several processes. The first process reads the file into an
 * arena and publishes it; the others map it for reading only.
 *
 *   cc weights.c $(pkg-config --cflags --libs gpualloc) -o weights
 *   ./weights publish @weights FILE   each line of the standard input prints the openers; its end
 *                                     ends the name, while openers keep the memory
 *   ./weights read @weights           prints the size and the sum of the bytes
 */
#include <gpualloc/arena.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static int complain(const char *call, ga_status status)
{
    fprintf(stderr, "weights: %s: %s: %s\n", call, ga_status_text(status), ga_error_text());
    return 1;
}

/* Exactly the file's size, in whole pages. */
static ga_status read_file(ga_arena *arena, FILE *file)
{
    long size = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    ga_status status = size < 0 ? GA_ERR_IO : ga_arena_grow(arena, (uint64_t)size);
    rewind(file);
    if (status == GA_OK && fread(ga_arena_base(arena), 1, (size_t)size, file) != (size_t)size) {
        status = GA_ERR_IO;
    }
    return status;
}

static void print_openers(ga_arena *arena)
{
    ga_arena_openers openers;
    if (ga_arena_count_openers(arena, &openers) == GA_OK) {
        printf("%" PRIu64 " readers\n", openers.readers);
        fflush(stdout);
    }
}

static int publish(const char *name, const char *path)
{
    ga_arena *arena;
    char line[8];
    ga_arena_options options = {.options_size = sizeof options,
                                .place = GA_PLACE_HOST,
                                .flags = GA_ARENA_SHARE_FD | GA_ARENA_EXACT};
    FILE *file = fopen(path, "rb");
    if (!file) {
        perror(path);
        return 1;
    }
    ga_status status = ga_arena_open(&arena, &options);
    if (status == GA_OK) {
        status = read_file(arena, file);
    }
    fclose(file);
    if (status == GA_OK) {
        status = ga_arena_publish(arena, name);
    }
    if (status != GA_OK) {
        ga_arena_close(arena);
        return complain("publishing", status);
    }
    print_openers(arena);
    while (fgets(line, sizeof line, stdin)) {
        print_openers(arena);
    }
    ga_arena_close(arena);
    return 0;
}

static int read_weights(const char *name)
{
    ga_arena *arena;
    uint64_t sum = 0;
    ga_status status = ga_arena_join(&arena, name, GA_ARENA_READ);
    if (status != GA_OK) {
        return complain("opening", status);
    }
    const unsigned char *bytes = ga_arena_base(arena);
    for (uint64_t i = 0; i < ga_arena_size(arena); i++) {
        sum += bytes[i];
    }
    printf("%" PRIu64 " bytes, sum %" PRIu64 "\n", ga_arena_size(arena), sum);
    fflush(stdout);
    getchar(); /* keep it open until the input ends */
    ga_arena_close(arena);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && strcmp(argv[1], "publish") == 0) {
        return publish(argv[2], argv[3]);
    }
    if (argc == 3 && strcmp(argv[1], "read") == 0) {
        return read_weights(argv[2]);
    }
    fprintf(stderr, "usage: weights publish NAME FILE | weights read NAME\n");
    return 2;
}
