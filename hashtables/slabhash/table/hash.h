/* SPDX-License-Identifier: MIT
 *
 * The hash of the slab hash (slab-hash-2018, §III-C), for the host and for kernels.
 */
#ifndef GPUALLOC_SLABHASH_TABLE_HASH_H
#define GPUALLOC_SLABHASH_TABLE_HASH_H

#include <gpualloc/detail/simt/bits.h>

#define GA_SLABHASH_PRIME ((UINT64_C(1) << 61) - 1u)

/* (a k + b) mod p with p = 2^61 - 1 (§III-C), then mixed.
 *
 * `a8` is 8 a, so that the product splits at bit 61 by itself; 2^61 is 1 mod p. The result may
 * be p instead of 0, and p + 1 to p + 3 instead of 1 to 3. Keys in an arithmetic pattern would keep
 * one, so the sum is mixed by a bijection, which leaves the seed's promise for any two keys as it
 * is. The table scales the hash to its buckets by a multiplication instead of the paper's mod B.
 * 64-bit keys that differ by a multiple of p share a hash: at most nine do.
 *
 * It has few instructions, because then more calls of a CPU have loads in flight at once. b is
 * added after the fold and not to the product: on x86-64 the carry would come from an instruction
 * that depends on the previous content of its register, so that each search would wait for the one
 * before. */
GA_SIMT uint64_t ga_slabhash_hash_of(uint64_t a8, uint64_t b, uint64_t key)
{
    uint64_t low;
    uint64_t high =
        ga_bits_product(a8, (key & GA_SLABHASH_PRIME) + (key >> 61), &low); /* below 2^62 */
    uint64_t sum = high + (low >> 3) + b;
    sum = (sum & GA_SLABHASH_PRIME) + (sum >> 61);
    return (sum ^ sum >> 32) * UINT64_C(0xff51afd7ed558ccd); /* bijective, as the factor is odd */
}

#endif
