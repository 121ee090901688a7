/* SPDX-License-Identifier: MIT
 *
 * MPI's types and reductions. An MPI_Datatype is an index into GA_MPI_TYPES, which has the C type.
 */
#ifndef GPUALLOC_GPU_MPI_TYPES_H
#define GPUALLOC_GPU_MPI_TYPES_H

#include "world.h"

typedef int MPI_Datatype;
typedef int MPI_Op;

/* name, C type, whether bits can be combined */
#define GA_MPI_TYPES(EACH)                                                                         \
    EACH(MPI_CHAR, char, true)                                                                     \
    EACH(MPI_SIGNED_CHAR, signed char, true)                                                       \
    EACH(MPI_UNSIGNED_CHAR, unsigned char, true)                                                   \
    EACH(MPI_BYTE, unsigned char, true)                                                            \
    EACH(MPI_SHORT, short, true)                                                                   \
    EACH(MPI_UNSIGNED_SHORT, unsigned short, true)                                                 \
    EACH(MPI_INT, int, true)                                                                       \
    EACH(MPI_UNSIGNED, unsigned, true)                                                             \
    EACH(MPI_LONG, long, true)                                                                     \
    EACH(MPI_UNSIGNED_LONG, unsigned long, true)                                                   \
    EACH(MPI_LONG_LONG, long long, true)                                                           \
    EACH(MPI_UNSIGNED_LONG_LONG, unsigned long long, true)                                         \
    EACH(MPI_FLOAT, float, false)                                                                  \
    EACH(MPI_DOUBLE, double, false)

#define GA_MPI_TYPE_NUMBER(name, type, bits) name,
enum {
    MPI_DATATYPE_NULL,
    GA_MPI_TYPES(GA_MPI_TYPE_NUMBER)
};
#undef GA_MPI_TYPE_NUMBER
#define MPI_LONG_LONG_INT MPI_LONG_LONG
#define MPI_INT8_T        MPI_SIGNED_CHAR
#define MPI_UINT8_T       MPI_UNSIGNED_CHAR
#define MPI_INT16_T       MPI_SHORT
#define MPI_UINT16_T      MPI_UNSIGNED_SHORT
#define MPI_INT32_T       MPI_INT
#define MPI_UINT32_T      MPI_UNSIGNED
#define MPI_INT64_T       MPI_LONG
#define MPI_UINT64_T      MPI_UNSIGNED_LONG

enum {
    MPI_OP_NULL,
    MPI_SUM,
    MPI_PROD,
    MPI_MAX,
    MPI_MIN,
    MPI_LAND,
    MPI_LOR,
    MPI_LXOR,
    MPI_BAND,
    MPI_BOR,
    MPI_BXOR,
    GA_MPI_OPS
};

/* Bytes of an element. An invalid type ends the program. */
GA_MPI_CALL size_t ga_mpi_type_bytes(const char *call, MPI_Datatype type)
{
    switch (type) {
#define GA_MPI_TYPE_BYTES(name, type, bits)                                                        \
    case name:                                                                                     \
        return sizeof(type);
        GA_MPI_TYPES(GA_MPI_TYPE_BYTES)
#undef GA_MPI_TYPE_BYTES
    default:
        ga_mpi_fail(call, "expected a basic type, not number", type);
        return 0;
    }
}

/* Bytes of `count` elements. */
GA_MPI_CALL size_t ga_mpi_bytes(const char *call, int count, MPI_Datatype type)
{
    if (count < 0) {
        ga_mpi_fail(call, "expected a count of 0 or more, not", count);
    }
    return (size_t)count * ga_mpi_type_bytes(call, type);
}

/* Operators of numbers, and of numbers whose bits may be combined. */
template <bool BITS> struct ga_mpi_operators {
    template <typename T> static __device__ T apply(MPI_Op op, T a, T b)
    {
        switch (op) {
        case MPI_PROD:
            return (T)(a * b);
        case MPI_MAX:
            return a > b ? a : b;
        case MPI_MIN:
            return a < b ? a : b;
        case MPI_LAND:
            return (T)(a && b);
        case MPI_LOR:
            return (T)(a || b);
        case MPI_LXOR:
            return (T)(!a != !b);
        default:
            return (T)(a + b);
        }
    }
};

template <> struct ga_mpi_operators<true> {
    template <typename T> static __device__ T apply(MPI_Op op, T a, T b)
    {
        switch (op) {
        case MPI_BAND:
            return (T)(a & b);
        case MPI_BOR:
            return (T)(a | b);
        case MPI_BXOR:
            return (T)(a ^ b);
        default:
            return ga_mpi_operators<false>::apply(op, a, b);
        }
    }
};

template <typename T, bool BITS>
GA_MPI_CALL void ga_mpi_combine_all(MPI_Op op, void *into, const void *from, int count)
{
    for (int i = 0; i < count; i++) {
        T *own = (T *)into + i;
        *own = ga_mpi_operators<BITS>::apply(op, *own, ((const T *)from)[i]);
    }
}

/* into[i] = into[i] OP from[i] */
GA_MPI_CALL void ga_mpi_combine(MPI_Op op, MPI_Datatype type, void *into, const void *from,
                                int count)
{
    switch (type) {
#define GA_MPI_COMBINE(name, type, bits)                                                           \
    case name:                                                                                     \
        ga_mpi_combine_all<type, bits>(op, into, from, count);                                     \
        break;
        GA_MPI_TYPES(GA_MPI_COMBINE)
#undef GA_MPI_COMBINE
    default:
        break;
    }
}

GA_MPI_CALL void ga_mpi_check_op(const char *call, MPI_Op op, MPI_Datatype type)
{
    if (op <= MPI_OP_NULL || op >= GA_MPI_OPS) {
        ga_mpi_fail(call, "expected an operation of MPI, not number", op);
    }
    if (op >= MPI_BAND && (type == MPI_FLOAT || type == MPI_DOUBLE)) {
        ga_mpi_fail(call, "expected a type of whole numbers for this operation, not number", type);
    }
}

#endif
