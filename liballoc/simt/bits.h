/* SPDX-License-Identifier: MIT
 *
 * Counting and selecting bits of one word. Plain functions with equal results on both sides.
 */
#ifndef GPUALLOC_SIMT_BITS_H
#define GPUALLOC_SIMT_BITS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* GA_SIMT: a function of the vocabulary, or an algorithm's fast path. GA_SIMT_SLOW: a function that
 * is seldom called and must not cost its callers registers. GA_UNROLL before a loop: unrolled on
 * the GPU.
 *
 * GA_SIMT_SAVES_REGISTERS(itself), in a large GA_SIMT_SLOW function: the function, and those that
 * it calls, follow CUDA's calling convention, and so save registers and barriers of their callers.
 * If the assembler (ptxas 13.0) knows all callers of a function, it lets the function overwrite any
 * register, and any barrier at which diverged lanes reconverge. A fast path then stores its
 * barriers in local memory, whether it calls or not. But a function whose address is taken follows
 * the convention. So do all functions of relocatable code. Not for functions that are called often,
 * because a call saves up to 16 registers. */
#ifdef __CUDACC__
#define GA_SIMT      static __device__ __forceinline__
#define GA_SIMT_SLOW static __device__ __noinline__
#define GA_UNROLL    _Pragma("unroll")
#if defined GA_SIMT_EMULATED || defined __CUDACC_RDC__
#define GA_SIMT_SAVES_REGISTERS(itself)
#else
#define GA_SIMT_SAVES_REGISTERS(itself) asm volatile("" ::"l"(&(itself)))
#endif
#else
#define GA_SIMT      static inline __attribute__((always_inline, unused))
#define GA_SIMT_SLOW static __attribute__((noinline, unused))
#define GA_UNROLL
#define GA_SIMT_SAVES_REGISTERS(itself)
#endif

/* An index that says: no such word, bit or lane. */
#define GA_NONE 32u

#define GA_ALL_BITS 0xffffffffu

GA_SIMT uint32_t ga_bits_count(uint32_t bits)
{
#if defined __CUDACC__
    return (uint32_t)__popc((int)bits);
#elif defined __x86_64__ && !defined __POPCNT__ /* because the builtin would be a call */
    bits -= (bits >> 1) & 0x55555555u;
    bits = (bits & 0x33333333u) + ((bits >> 2) & 0x33333333u);
    return ((bits + (bits >> 4)) & 0x0f0f0f0fu) * 0x01010101u >> 24;
#else
    return (uint32_t)__builtin_popcount(bits);
#endif
}

/* The index of the lowest set bit; `bits` is not 0. */
GA_SIMT uint32_t ga_bits_lowest(uint32_t bits)
{
#ifdef __CUDACC__
    return (uint32_t)__ffs((int)bits) - 1u;
#else
    return (uint32_t)__builtin_ctz(bits);
#endif
}

/* Rotate left by `n`, below 32. */
GA_SIMT uint32_t ga_bits_rotate32(uint32_t bits, uint32_t n)
{
#ifdef __CUDACC__
    return __funnelshift_l(bits, bits, n);
#else
    return bits << n | bits >> (-n & 31u);
#endif
}

/* Rotate right by `n`, below 32. */
GA_SIMT uint64_t ga_bits_rotate(uint64_t bits, uint32_t n)
{
#ifdef __CUDACC__
    uint32_t low = (uint32_t)bits;
    uint32_t high = (uint32_t)(bits >> 32);
    return (uint64_t)__funnelshift_r(high, low, n) << 32 | __funnelshift_r(low, high, n);
#else
    return bits >> n | bits << (-n & 63u);
#endif
}

/* The number of clear bits above the highest set bit; `bits` is not 0. */
GA_SIMT uint32_t ga_bits_leading(uint32_t bits)
{
#ifdef __CUDACC__
    return (uint32_t)__clz((int)bits);
#else
    return (uint32_t)__builtin_clz(bits);
#endif
}

/* Bits 0 to n - 1; n is at most 32. */
GA_SIMT uint32_t ga_bits_below(uint32_t n)
{
    return n < 32u ? (1u << n) - 1u : GA_ALL_BITS;
}

/* The upper 64 bits of the product. */
GA_SIMT uint64_t ga_bits_high(uint64_t a, uint64_t b)
{
#ifdef __CUDACC__
    return __umul64hi(a, b);
#else
    return (uint64_t)(__extension__(unsigned __int128) a * b >> 64);
#endif
}

/* The product: its upper 64 bits, and the lower ones. */
GA_SIMT uint64_t ga_bits_product(uint64_t a, uint64_t b, uint64_t *low)
{
#ifdef __CUDACC__
    *low = a * b;
    return __umul64hi(a, b);
#else
    __extension__ unsigned __int128 product = (unsigned __int128)a * b;
    *low = (uint64_t)product;
    return (uint64_t)(product >> 64);
#endif
}

/* The upper 32 bits of the product. */
GA_SIMT uint32_t ga_bits_high32(uint32_t a, uint32_t b)
{
#ifdef __CUDACC__
    return __umulhi(a, b);
#else
    return (uint32_t)((uint64_t)a * b >> 32);
#endif
}

/* A logarithm in steps of a quarter doubling: 4 * floor(log2(x)) plus the two bits behind the
 * highest set bit. `x` is at least 4. From 2^24 on the result may be greater by 1 on the GPU, which
 * reads both parts from the float of `x`. */
GA_SIMT uint32_t ga_bits_quarters(uint32_t x)
{
#ifdef __CUDACC__
    return (__float_as_uint((float)x) >> 21) - 4u * 127u;
#else
    uint32_t power = 31u - ga_bits_leading(x);
    return 4u * power + ((x >> (power - 2u)) & 3u);
#endif
}

/* Shift right by `n` % 32: only the lowest five bits of `n` count, so the others may hold other
 * data. */
GA_SIMT uint32_t ga_bits_down(uint32_t bits, uint32_t n)
{
#ifdef __CUDACC__
    return __funnelshift_r(bits, 0, n);
#else
    return bits >> (n & 31u);
#endif
}

/* `n` % `m`, for wrapping around a ring. The GPU has no division: there the result is mostly exact,
 * else another number. If `m` is 0 it is any number. */
GA_SIMT uint32_t ga_bits_round(uint32_t n, uint32_t m)
{
#ifdef __CUDACC__
    float inverse;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(inverse) : "f"(__uint2float_rn(m)));
    uint32_t rest = n - m * __float2uint_rz(__uint2float_rn(n) * inverse);
    return (int32_t)rest < 0 ? rest + m : rest; /* the quotient was rounded up */
#else
    return m ? n % m : n;
#endif
}

/* The address of element `n`, of `size` bytes each. On the GPU one instruction, for which the
 * compiler would use 64-bit shifts and an addition if the size is a power of two. */
GA_SIMT char *ga_bits_element(char *base, uint32_t n, uint32_t size)
{
#ifdef __CUDACC__
    uint64_t at;
    asm("mad.wide.u32 %0, %1, %2, %3;" : "=l"(at) : "r"(n), "r"(size), "l"(base));
    return (char *)at;
#else
    return (char *)((uintptr_t)base + (uint64_t)n * size); /* wraps for any base, as on the GPU */
#endif
}

/* The index of the set bit of `bits` that has `rank` set bits below it. It exists. */
GA_SIMT uint32_t ga_bits_nth(uint32_t bits, uint32_t rank)
{
    uint32_t place = 0;
#ifdef __CUDACC__
#pragma unroll
#endif
    for (uint32_t width = 16; width; width /= 2) {
        uint32_t low = ga_bits_count((bits >> place) & ((1u << width) - 1u));
        if (rank >= low) {
            rank -= low;
            place += width;
        }
    }
    return place;
}

/* The n lowest set bits of `bits`, or all if there are fewer. */
GA_SIMT uint32_t ga_bits_take(uint32_t bits, uint32_t n)
{
    return n >= ga_bits_count(bits) ? bits : bits & ga_bits_below(ga_bits_nth(bits, n));
}

/* The first set bit from index `start` (below 32) on, wrapping around; `bits` is not 0. */
GA_SIMT uint32_t ga_bits_from(uint32_t bits, uint32_t start)
{
    uint32_t turned = (bits >> start) | (bits << ((32u - start) & 31u));
    return (ga_bits_lowest(turned) + start) & 31u;
}

/* Mix: each bit of `x` changes about half the bits of the answer. The finaliser of MurmurHash3
 * (Austin Appleby, public domain). */
GA_SIMT uint32_t ga_bits_mix(uint32_t x)
{
    x = (x ^ (x >> 16)) * 0x85ebca6bu;
    x = (x ^ (x >> 13)) * 0xc2b2ae35u;
    return x ^ (x >> 16);
}

#endif
