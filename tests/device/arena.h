/* SPDX-License-Identifier: MIT
 *
 * Shared by the cases of arenas; the functions print errors to standard output.
 */
#ifndef TESTS_DEVICE_ARENA_H
#define TESTS_DEVICE_ARENA_H

#include "cases.h"

#include <gpualloc/arena.h>

#define MIB ((uint64_t)1 << 20)
#define GIB ((uint64_t)1 << 30)

/* reserve 0: the default */
bool arena_open(ga_arena **arena, int device, uint32_t flags, uint64_t reserve);
bool arena_grow(ga_arena *arena, uint64_t size);

/* 64 KiB of `value`, from the device's side. */
bool arena_fill_at(ga_arena *arena, int device, uint64_t at, unsigned char value);
bool arena_holds_at(ga_arena *arena, int device, uint64_t at, unsigned char value);

/* A device with peer access to the memory of this one; -1 if there is none. */
int arena_peer_of(int device);

/* Bytes that the driver has left. */
uint64_t arena_free_memory(int device);

#endif
