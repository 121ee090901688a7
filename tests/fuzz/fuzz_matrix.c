/* SPDX-License-Identifier: MIT
 *
 * The reader of Matrix Market files on damaged files. It would catch reads past a buffer, memory
 * for sizes that only the file claims, matrices that are not as they should be, values that are
 * lost on the way through a file, and messages that are empty or cannot be printed.
 *
 * The first byte of an input selects the options, and whether a banner is put before the rest.
 */
#include "fuzz.h"

#include <err.h>
#include <gpualloc/matrix.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

const char *const fuzz_tokens[] = {
    "%%MatrixMarket matrix ",
    "coordinate ",
    "array ",
    "real ",
    "integer ",
    "pattern ",
    "complex ",
    "general\n",
    "symmetric\n",
    "skew-symmetric\n",
    "hermitian\n",
    "\n% comment\n",
    "\r\n",
    "1 1 1\n",
    "3 2 -1.5e-7\n",
    "2 1 nan\n",
    "1e309",
    "1e-400",
    "12345678901234567890.5",
    "4294967295 ",
    "4294967296 ",
    "18446744073709551615 ",
    "18446744073709551616 ",
    "-inf ",
    NULL,
};

enum {
    FORMATS = 2,
    FIELDS = 4,
    SYMMETRIES = 3,
    BANNERS = FORMATS * FIELDS * SYMMETRIES,
    FLAGS_BIT = 0x80, /* of the first byte: zeros are dropped */
    TYPE_BIT = 0x40,  /* values are float32 */
    BANNER_BITS = 0x3f,
    ROWS_MAX = 5000
};

/* ---- seeds ---------------------------------------------------------------------------------- */

static const char *banner_of(unsigned number)
{
    static const char *const formats[] = {"coordinate", "array"};
    static const char *const fields[] = {"real", "integer", "pattern", "complex"};
    static const char *const symmetries[] = {"general", "symmetric", "skew-symmetric"};
    static char room[100];
    snprintf(room, sizeof room, "%%%%MatrixMarket matrix %s %s %s\n", formats[number % FORMATS],
             fields[number / FORMATS % FIELDS], symmetries[number / FORMATS / FIELDS % SYMMETRIES]);
    return room;
}

/* Files behind a banner, for each of which there is a seed with every banner. */
static const char *const contents[] = {
    "3 3 3\n2 1 1.5\n3 2 -2\n3 1 0\n",  "% comment\n\n3 3 4\n3 1 4\n2 1 5\n3 1 -4\n3 2 1e-7\n",
    "3 3\n1\n2\n3\n4\n5\n6\n7\n8\n9\n", "2 2\n-1\n",
    "4 4 3\n4 1\n3 2\n2 1\n",           "5 5 2\r\n5 1 7\r\n4 3 -0\r\n",
};

size_t fuzz_seed(size_t number, uint8_t room[FUZZ_INPUT_MAX])
{
    size_t count = sizeof contents / sizeof *contents;
    if (number >= 2 * count * BANNERS) {
        return 0;
    }
    unsigned banner = (unsigned)(number % BANNERS);
    const char *text = contents[number / BANNERS % count];
    bool whole = number >= count * BANNERS; /* the banner is in the input */
    room[0] = (uint8_t)((whole ? BANNER_BITS : banner) | (number & 1 ? TYPE_BIT : 0) |
                        (number & 2 ? FLAGS_BIT : 0));
    return 1 + (size_t)snprintf((char *)room + 1, FUZZ_INPUT_MAX - 1, "%s%s",
                                whole ? banner_of(banner) : "", text);
}

/* ---- files ---------------------------------------------------------------------------------- */

static const char *file_with(const char *banner, const uint8_t *rest, size_t size)
{
    static char path[64];
    static int fd = -1;
    size_t length = strlen(banner);
    if (fd < 0) {
        fd = memfd_create("matrix", MFD_CLOEXEC);
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
    }
    if (fd < 0 || ftruncate(fd, 0) != 0 || pwrite(fd, banner, length, 0) != (ssize_t)length ||
        pwrite(fd, rest, size, (off_t)length) != (ssize_t)size) {
        err(1, "cannot write a file to read");
    }
    return path;
}

static char written[64];

static void remove_written(void)
{
    unlink(written);
}

static const char *written_path(void)
{
    if (!*written) {
        const char *folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
        snprintf(written, sizeof written, "%s/gpualloc-fuzz-matrix-%ld", folder, (long)getpid());
        atexit(remove_written);
    }
    return written;
}

/* ---- checks --------------------------------------------------------------------------------- */

static double value_at(const ga_csr *m, uint64_t i)
{
    return m->type == GA_FLOAT32 ? (double)((const float *)m->values)[i]
                                 : ((const double *)m->values)[i];
}

static void check_equal(const ga_csr *a, const ga_csr *b)
{
    FUZZ_NEED(a->rows == b->rows && a->columns == b->columns);
    FUZZ_NEED(memcmp(a->offsets, b->offsets, (a->rows + 1) * sizeof *a->offsets) == 0);
    for (uint64_t i = 0; i < a->offsets[a->rows]; i++) {
        double x = value_at(a, i);
        double y = value_at(b, i);
        FUZZ_NEED(a->indices[i] == b->indices[i]);
        FUZZ_NEED((isnan(x) && isnan(y)) || (x == y && signbit(x) == signbit(y)));
    }
}

static void check_matrix(const ga_matrix *matrix, const ga_matrix_options *options, size_t bytes)
{
    ga_csr a = ga_matrix_view(matrix);
    ga_matrix *again;
    FUZZ_NEED(ga_csr_check(&a) == GA_OK);
    FUZZ_NEED(a.rows <= ROWS_MAX && a.offsets[a.rows] <= bytes);
    FUZZ_NEED(ga_matrix_write(&a, written_path()) == GA_OK);
    FUZZ_NEED(ga_matrix_read(&again, written_path(), options) == GA_OK);
    ga_csr b = ga_matrix_view(again);
    check_equal(&a, &b);
    ga_matrix_free(again);
}

/* ---- the target ----------------------------------------------------------------------------- */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    uint8_t first = size ? data[0] : 0;
    unsigned banner = first & BANNER_BITS;
    ga_matrix_options options = {
        .options_size = sizeof options,
        .flags = first & FLAGS_BIT ? GA_MATRIX_DROP_ZEROS : 0,
        .type = first & TYPE_BIT ? GA_FLOAT32 : GA_FLOAT64,
        .rows_max = ROWS_MAX,
    };
    ga_matrix *matrix;
    const char *path = file_with(banner < BANNERS ? banner_of(banner) : "", size ? data + 1 : data,
                                 size ? size - 1 : 0);
    ga_status status = ga_matrix_read(&matrix, path, &options);
    if (status == GA_OK) {
        check_matrix(matrix, &options, size + sizeof "%%MatrixMarket");
        ga_matrix_free(matrix);
        return 0;
    }
    FUZZ_NEED(!matrix && (status == GA_ERR_IO || status == GA_ERR_UNSUPPORTED));
    fuzz_check_sentence();
    return 0;
}
