/* SPDX-License-Identifier: MIT
 *
 * Statuses as exceptions, for the C++ headers. The text of an exception is the thread's
 * ga_error_text() at the time of the throw.
 */
#ifndef GPUALLOC_STATUS_HPP
#define GPUALLOC_STATUS_HPP

#include <gpualloc/gpualloc.h>

#include <cstring>
#include <new>
#include <stdexcept>

namespace gpualloc
{

/* GA_ERR_MEMORY. Derived from std::bad_alloc, which C++ programs catch already. */
class bad_alloc : public std::bad_alloc
{
  public:
    explicit bad_alloc(const char *text) noexcept
    {
        std::strncpy(text_, text, sizeof text_ - 1);
    }

    const char *what() const noexcept override
    {
        return text_;
    }

  private:
    char text_[256] = {}; /* not on the heap, because there may be no memory */
};

/* Every other status. */
class error : public std::runtime_error
{
  public:
    error(ga_status status, const char *text) : std::runtime_error(text), status_(status)
    {
    }

    ga_status status() const noexcept
    {
        return status_;
    }

  private:
    ga_status status_;
};

/* Throw bad_alloc for GA_ERR_MEMORY and error for any other failure. */
inline void check(ga_status status)
{
    if (status == GA_ERR_MEMORY) {
        throw bad_alloc(ga_error_text());
    }
    if (status != GA_OK) {
        throw error(status, ga_error_text());
    }
}

} // namespace gpualloc

#endif
