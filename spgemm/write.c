/* SPDX-License-Identifier: MIT
 *
 * Matrix Market files from memory.
 *
 *     ga_matrix_write    open_temp -> write_all -> replace_target
 */
#include "matrix.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    NAME_BYTES = 64, /* for the name of a temporary file */
    NAME_TRIES = 100 /* names tried: earlier processes may have left files */
};

typedef struct writer {
    const char *path;
    FILE *file;
    mode_t mode;                           /* permissions of the file to be replaced, else 0 */
    char temp_path[PATH_MAX + NAME_BYTES]; /* the file until it is complete */
} writer;

static ga_status system_error(const writer *w, const char *verb, int error)
{
    return ga_fail(GA_ERR_IO, "matrix: %s: cannot %s it: %s", w->path, verb, strerror(error));
}

/* ---- the file ------------------------------------------------------------------------------- */

/* A device or a link at the path stays, because rename() would replace it. */
static ga_status check_target(writer *w)
{
    struct stat info;
    if (lstat(w->path, &info)) {
        return errno == ENOENT ? GA_OK : system_error(w, "make", errno);
    }
    if (!S_ISREG(info.st_mode)) {
        return ga_fail(GA_ERR_IO, "matrix: %s: no regular file: expected one, or none yet",
                       w->path);
    }
    w->mode = info.st_mode & 0777;
    return access(w->path, W_OK) ? system_error(w, "write", errno) : GA_OK;
}

/* Creates a file in the directory of the path, under an unused name; -1 with errno. */
static int create_temp(writer *w)
{
    static uint32_t number;
    const char *slash = strrchr(w->path, '/');
    size_t size = slash ? (size_t)(slash + 1 - w->path) : 0;
    int file = -1;
    if (size >= PATH_MAX) {
        errno = ENAMETOOLONG;
        return -1;
    }
    memcpy(w->temp_path, w->path, size);
    for (int i = 0; file < 0 && i < NAME_TRIES && (!i || errno == EEXIST); i++) {
        /* relaxed: only must be unique */
        uint32_t own = __atomic_add_fetch(&number, 1, __ATOMIC_RELAXED);
        snprintf(w->temp_path + size, NAME_BYTES, ".matrix-%ld-%u", (long)getpid(), own);
        file = open(w->temp_path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    }
    return file;
}

static ga_status open_temp(writer *w)
{
    ga_status status = check_target(w);
    if (status != GA_OK) {
        return status;
    }
    int file = create_temp(w);
    if (file < 0) {
        return system_error(w, "make", errno);
    }
    if ((w->mode && fchmod(file, w->mode)) || !(w->file = fdopen(file, "wb"))) {
        status = system_error(w, "make", errno);
        close(file);
        unlink(w->temp_path);
    }
    return status;
}

/* Renames the complete file over the target, or removes it. */
static ga_status replace_target(writer *w, ga_status status)
{
    if (fclose(w->file) && status == GA_OK) {
        status = system_error(w, "write", errno);
    }
    if (status == GA_OK && rename(w->temp_path, w->path)) {
        status = system_error(w, "replace", errno);
    }
    if (status != GA_OK) {
        unlink(w->temp_path);
    }
    return status;
}

/* ---- the contents --------------------------------------------------------------------------- */

static bool write_entry(FILE *file, const ga_csr *m, uint64_t row, uint64_t at)
{
    unsigned long long first = row + 1;
    unsigned long long second = m->indices[at] + 1ull;
    int written = m->type == GA_FLOAT32 ? fprintf(file, "%llu %llu %.9g\n", first, second,
                                                  (double)((const float *)m->values)[at])
                                        : fprintf(file, "%llu %llu %.17g\n", first, second,
                                                  ((const double *)m->values)[at]);
    return written >= 0;
}

static bool write_rows(FILE *file, const ga_csr *m)
{
    bool good = fprintf(file, "%%%%MatrixMarket matrix coordinate real general\n%llu %llu %llu\n",
                        (unsigned long long)m->rows, (unsigned long long)m->columns,
                        (unsigned long long)m->offsets[m->rows]) >= 0;
    for (uint64_t row = 0; good && row < m->rows; row++) {
        for (uint64_t at = m->offsets[row]; good && at < m->offsets[row + 1]; at++) {
            good = write_entry(file, m, row, at);
        }
    }
    return good;
}

/* In the locale "C", because others have another decimal point. */
static ga_status write_all(writer *w, const ga_csr *m, locale_t c_locale)
{
    locale_t before = uselocale(c_locale);
    errno = 0;
    bool good = write_rows(w->file, m) && fflush(w->file) == 0 && fsync(fileno(w->file)) == 0;
    int error = errno ? errno : EIO;
    uselocale(before);
    return good ? GA_OK : system_error(w, "write", error);
}

ga_status ga_matrix_write(const ga_csr *matrix, const char *path)
{
    if (!path) {
        return ga_fail(GA_ERR_ARGUMENT, "matrix: no path of a file: expected a text");
    }
    writer w = {.path = path};
    ga_status status = ga_csr_check(matrix);
    if (status != GA_OK) {
        return status;
    }
    locale_t c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (!c_locale) {
        return ga_fail(GA_ERR_MEMORY, "matrix: %s: no memory for a locale", path);
    }
    status = open_temp(&w);
    status = status ? status : replace_target(&w, write_all(&w, matrix, c_locale));
    freelocale(c_locale);
    return status;
}
