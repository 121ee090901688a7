/* SPDX-License-Identifier: MIT */
#include "c10.h"

namespace c10
{

std::atomic<int> Error::alive{0};

Error::Error(SourceLocation where, std::string message)
    : message_(std::move(message)), where_(where)
{
    alive++;
}

Error::~Error()
{
    alive--;
}

const char *Error::what() const noexcept
{
    return message_.c_str();
}

Allocator::~Allocator() = default;

} // namespace c10
