/* SPDX-License-Identifier: MIT
 *
 * C++'s operators when memory is exhausted, and for aligned objects. A program, and a library for
 * aligned.c.
 */
#include "check.h"

#include <cstdint>
#include <cstdio>
#include <new>

namespace
{

volatile std::size_t huge = PTRDIFF_MAX;
int handled = 0;

template <typename Allocate> bool throws(Allocate allocate)
{
    try {
        return allocate() == nullptr;
    } catch (const std::bad_alloc &) {
        return true;
    }
}

void handle()
{
    handled++;
    std::set_new_handler(nullptr);
}

void test_exhausted()
{
    auto align = std::align_val_t{64};
    CHECK(throws([] { return ::operator new(huge); }));
    CHECK(throws([] { return ::operator new[](huge); }));
    CHECK(throws([=] { return ::operator new(huge, align); }));
    CHECK(throws([=] { return ::operator new[](huge, align); }));
    CHECK(::operator new(huge, std::nothrow) == nullptr);
    CHECK(::operator new[](huge, std::nothrow) == nullptr);
    CHECK(::operator new(huge, align, std::nothrow) == nullptr);
    CHECK(::operator new[](huge, align, std::nothrow) == nullptr);
}

void test_handler()
{
    std::set_new_handler(handle);
    CHECK(throws([] { return ::operator new(huge); }) && handled == 1);
    std::set_new_handler(handle);
    CHECK(throws([] { return ::operator new[](huge, std::align_val_t{256}); }) && handled == 2);
}

void test_aligned(std::size_t number, std::size_t size)
{
    constexpr int count = 8;
    auto align = std::align_val_t{number};
    void *blocks[count][4];
    for (auto &four : blocks) {
        four[0] = ::operator new(size, align);
        four[1] = ::operator new[](size, align);
        four[2] = ::operator new(size, align, std::nothrow);
        four[3] = ::operator new[](size, align, std::nothrow);
        for (void *block : four) {
            CHECK(block && reinterpret_cast<std::uintptr_t>(block) % number == 0);
            check_fill(block, size, 1);
        }
    }
    for (auto &four : blocks) {
        ::operator delete(four[0], size, align);
        ::operator delete[](four[1], size, align);
        ::operator delete(four[2], align, std::nothrow);
        ::operator delete[](four[3], align);
    }
}

void test_plain(std::size_t size)
{
    void *blocks[] = {::operator new(size), ::operator new[](size),
                      ::operator new(size, std::nothrow), ::operator new[](size, std::nothrow)};
    for (void *block : blocks) {
        CHECK(block);
        check_fill(block, size, 1);
    }
    ::operator delete(blocks[0], size);
    ::operator delete[](blocks[1], size);
    ::operator delete(blocks[2], std::nothrow);
    ::operator delete[](blocks[3]);
}

} // namespace

extern "C" __attribute__((visibility("default"))) void forms_of_new();

void forms_of_new()
{
    for (std::size_t size = 0; size <= 1 << 16; size = size * 2 + !size) {
        test_plain(size);
        for (std::size_t align = 8; align <= 1 << 13; align *= 2) {
            test_aligned(align, size);
        }
    }
    test_exhausted();
    test_handler();
    std::puts("forms of new");
}

#ifndef AS_LIBRARY
int main()
{
    forms_of_new();
    return 0;
}
#endif
