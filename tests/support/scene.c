/* SPDX-License-Identifier: MIT
 *
 * Folders, captured output, children.
 */
#include "scene.h"

#include "sanitized.h"

#include <dirent.h>
#include <err.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static char folder[64];
static char captured[1 << 16];
static int saved_stderr = -1;
static int capture_file = -1;

/* ---- a folder ----------------------------------------------------------------------------- */

const char *scene_enter_folder(void)
{
    strcpy(folder, "/tmp/gpualloc-test-XXXXXX");
    if (!mkdtemp(folder)) {
        err(1, "cannot make a folder for the test");
    }
    return folder;
}

const char *scene_path(const char *name)
{
    static char rooms[32][PATH_MAX];
    static unsigned next;
    char *room = rooms[next++ % 32];
    snprintf(room, PATH_MAX, "%s/%s", folder, name);
    return room;
}

void scene_leave_folder(void)
{
    DIR *dir = opendir(folder);
    struct dirent *entry;
    while (dir && (entry = readdir(dir))) {
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0) {
            unlinkat(dirfd(dir), entry->d_name, 0);
        }
    }
    if (dir) {
        closedir(dir);
    }
    rmdir(folder);
}

void scene_write_file(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wbe");
    if (!file || fwrite(bytes, 1, size, file) != size || fclose(file) != 0) {
        err(1, "cannot write %s", path);
    }
}

size_t scene_read_file(const char *path, char *room, size_t size)
{
    FILE *file = fopen(path, "rbe");
    size_t length = file ? fread(room, 1, size - 1, file) : 0;
    room[length] = '\0';
    if (file) {
        fclose(file);
    }
    return length;
}

/* ---- standard error ----------------------------------------------------------------------- */

void scene_capture_begin(void)
{
    capture_file = memfd_create("stderr", MFD_CLOEXEC);
    fflush(stderr);
    saved_stderr = dup(STDERR_FILENO);
    if (capture_file < 0 || saved_stderr < 0 || dup2(capture_file, STDERR_FILENO) < 0) {
        err(1, "cannot catch standard error");
    }
}

const char *scene_capture_end(void)
{
    fflush(stderr);
    dup2(saved_stderr, STDERR_FILENO);
    close(saved_stderr);
    ssize_t length = pread(capture_file, captured, sizeof captured - 1, 0);
    captured[length > 0 ? length : 0] = '\0';
    close(capture_file);
    return captured;
}

/* ---- a child ------------------------------------------------------------------------------ */

/* A child finds the locks of gcc's asan as they were, those of its heap too. Threads take these
 * while they begin; most that we test take them seldom afterwards. */
static void let_threads_begin(void)
{
    if (UNDER_ASAN) {
        usleep(3000);
    }
}

int scene_in_child(int (*body)(void *context), void *context)
{
    fflush(NULL);
    let_threads_begin();
    pid_t child = fork();
    if (child < 0) {
        err(1, "cannot fork");
    }
    if (child == 0) {
        _exit(body(context));
    }
    int status;
    if (waitpid(child, &status, 0) != child) {
        err(1, "cannot wait for a child");
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}
