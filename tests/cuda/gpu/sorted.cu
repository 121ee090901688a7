/* SPDX-License-Identifier: MIT
 *
 * A Thrust program for a machine with a GPU, to be run without the preload and with it: temporary
 * storage of algorithms and vectors that grow. Both outputs must be equal.
 *
 *   sorted [brief]     brief: a part that takes seconds with tools that check each access
 */
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sequence.h>
#include <thrust/sort.h>

#include <cstdio>
#include <cstring>

struct scramble {
    __host__ __device__ unsigned operator()(unsigned n) const
    {
        return n * 2654435761u ^ n >> 7;
    }
};

int main(int argc, char **argv)
{
    bool brief = argc > 1 && std::strcmp(argv[1], "brief") == 0;
    unsigned largest = brief ? 100000 : 10000000;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || !count) {
        std::puts("no GPU here");
        return 77;
    }
    for (unsigned size = 1000; size <= largest; size *= 10) {
        thrust::device_vector<unsigned> values(size);
        thrust::sequence(values.begin(), values.end());
        thrust::transform(values.begin(), values.end(), values.begin(), scramble());
        unsigned sum = thrust::reduce(values.begin(), values.end());
        thrust::sort(values.begin(), values.end());
        unsigned first = values.front();
        unsigned middle = values[size / 2];
        std::printf("%u values: sum %u, first %u, middle %u\n", size, sum, first, middle);
    }
    return 0;
}
