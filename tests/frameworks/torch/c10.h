/* SPDX-License-Identifier: MIT
 *
 * The classes of PyTorch that a plug-in meets, in libraries of PyTorch's names: exceptions and
 * allocators, with the mangled names, bases and constructors of PyTorch 2.11. As there, the plug-in
 * allocator does not test its result.
 */
#ifndef GPUALLOC_TESTS_FRAMEWORKS_C10_H
#define GPUALLOC_TESTS_FRAMEWORKS_C10_H

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>
#include <vector>

#define EXPORTED __attribute__((visibility("default")))

typedef struct CUstream_st *cudaStream_t;

namespace c10
{

struct EXPORTED SourceLocation {
    const char *function, *file;
    uint32_t line;
};

class EXPORTED Error : public std::exception
{
  public:
    Error(SourceLocation where, std::string message);
    ~Error() override;
    const char *what() const noexcept override;

    static std::atomic<int> alive; /* objects: thrown ones are destroyed */

  private:
    std::string message_;
    std::vector<std::string> context_;
    SourceLocation where_;
};

class EXPORTED OutOfMemoryError : public Error
{
    using Error::Error;
};

struct EXPORTED Allocator {
    virtual ~Allocator();
    virtual void *allocate(size_t size) = 0;
};

namespace cuda
{
namespace CUDACachingAllocator
{

class EXPORTED CUDAAllocator : public Allocator
{
};

extern EXPORTED std::atomic<CUDAAllocator *> allocator;

/* PyTorch's own, which throws by itself. */
EXPORTED void use_native();
[[noreturn]] EXPORTED void refuse();

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10

namespace torch
{
namespace cuda
{
namespace CUDAPluggableAllocator
{

struct EXPORTED CUDAPluggableAllocator : c10::cuda::CUDACachingAllocator::CUDAAllocator {
    explicit CUDAPluggableAllocator(std::function<void *(size_t, int, cudaStream_t)> function);
    void *allocate(size_t size) override;

  private:
    std::function<void *(size_t, int, cudaStream_t)> function_;
};

} // namespace CUDAPluggableAllocator
} // namespace cuda
} // namespace torch

#endif
