/* SPDX-License-Identifier: MIT */
#include "entropy.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <time.h>
#include <unistd.h>

/* The finaliser of splitmix64, which is a bijection. */
static uint64_t mix(uint64_t z)
{
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A chroot may have another file under this name, such as one with known contents or a FIFO. */
static bool is_urandom(int file)
{
    struct stat status;
    return fstat(file, &status) == 0 && S_ISCHR(status.st_mode) &&
           status.st_rdev == makedev(1, 9); /* Linux's numbers of the device */
}

/* /dev/urandom never blocks, even before the kernel has gathered entropy; /dev/random may. */
static bool fill_from_urandom(unsigned char *bytes, size_t size)
{
    int file = open("/dev/urandom", O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY);
    size_t done = 0;
    bool readable = file >= 0 && is_urandom(file);
    while (readable && done < size) {
        ssize_t length = read(file, bytes + done, size - done);
        readable = length > 0 || (length < 0 && errno == EINTR);
        done += length > 0 ? (size_t)length : 0;
    }
    if (file >= 0) {
        close(file);
    }
    return done == size;
}

/* The kernel gives each execve() 16 random bytes (AT_RANDOM). A forked child inherits them and the
 * count of calls, so that its process id and the clock must make the difference. */
static uint64_t gather(void)
{
    static uint64_t calls;
    struct timespec now = {0};
    uint64_t words[2] = {0};
    const void *start = (const void *)getauxval(AT_RANDOM);
    if (start) {
        memcpy(words, start, sizeof words);
    }
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t moment = (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
    /* relaxed: calls need different numbers, in no order. */
    uint64_t call = __atomic_add_fetch(&calls, 1, __ATOMIC_RELAXED);
    uint64_t process = (uint64_t)getpid() << 32;
    return mix(mix(mix(words[0] ^ moment) ^ words[1] ^ (uintptr_t)&now) + (call ^ process));
}

static void fill_from_clock(unsigned char *bytes, size_t size)
{
    while (size) {
        uint64_t word = gather();
        size_t part = size < sizeof word ? size : sizeof word;
        memcpy(bytes, &word, part);
        bytes += part;
        size -= part;
    }
}

static bool fill_by_getrandom(unsigned char *bytes, size_t size)
{
    while (size) {
        ssize_t length = getrandom(bytes, size, GRND_NONBLOCK);
        bool interrupted = length < 0 && errno == EINTR;
        if (length <= 0 && !interrupted) {
            return false;
        }
        bytes += interrupted ? 0 : length;
        size -= interrupted ? 0 : (size_t)length;
    }
    return true;
}

bool ga_entropy_fill(void *bytes, size_t size)
{
    int saved = errno;
    bool random = fill_by_getrandom(bytes, size) || fill_from_urandom(bytes, size);
    if (!random) {
        fill_from_clock(bytes, size);
    }
    errno = saved;
    return random;
}

uint64_t ga_entropy(void)
{
    uint64_t word;
    ga_entropy_fill(&word, sizeof word);
    return word;
}
