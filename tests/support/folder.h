/* SPDX-License-Identifier: MIT
 *
 * The number of files in a folder, so that a test sees what a failed call leaves behind.
 */
#ifndef GPUALLOC_TESTS_SUPPORT_FOLDER_H
#define GPUALLOC_TESTS_SUPPORT_FOLDER_H

#include <criterion/criterion.h>

#include <dirent.h>
#include <stdint.h>

static inline uint32_t files_in_folder(const char *folder)
{
    uint32_t count = 0;
    DIR *d = opendir(folder);
    cr_assert(d);
    while (readdir(d)) {
        count++;
    }
    closedir(d);
    return count - 2; /* . and .. */
}

#endif
