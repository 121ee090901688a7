// SPDX-License-Identifier: MIT
//
// Several threads that use every form of new and delete, throw through them, and hand blocks to
// each other; the last line is a checksum of all that was in them. Part of the tests of real
// programs, because nothing else here is sure to use every form.

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace
{

constexpr int threads = 4;
constexpr int rounds = 20000;

struct Plain {
    std::uint64_t a, b;
};

struct alignas(256) Wide {
    std::uint64_t values[32];
};

struct Thrower {
    std::string held;

    explicit Thrower(int n) : held(static_cast<std::size_t>(n % 100), 't')
    {
        if (n % 3 == 0) {
            throw std::runtime_error("thrown by a constructor, number " + std::to_string(n));
        }
    }
};

[[noreturn]] void fail(const char *what)
{
    std::fprintf(stderr, "forms_of_new: %s\n", what);
    std::exit(1);
}

void need(bool so, const char *what)
{
    if (!so) {
        fail(what);
    }
}

template <typename T> void need_aligned(const T *block)
{
    need(reinterpret_cast<std::uintptr_t>(block) % alignof(T) == 0, "a block is not aligned");
}

std::uint64_t single_forms(std::uint64_t n)
{
    auto *plain = new Plain{n, n + 1};
    auto *nothrow = new (std::nothrow) Plain{n + 2, n + 3};
    need(nothrow != nullptr, "nothrow new gave nothing");
    alignas(Plain) unsigned char room[sizeof(Plain)];
    auto *placed = new (room) Plain{n + 4, n + 5};
    std::uint64_t sum = plain->a + plain->b + nothrow->a + nothrow->b + placed->a + placed->b;
    placed->~Plain();
    delete nothrow;
    delete plain;
    return sum;
}

std::uint64_t array_forms(std::uint64_t n)
{
    std::size_t count = n % 300 + 1;
    auto *numbers = new std::uint64_t[count];
    auto *zeros = new (std::nothrow) std::uint64_t[count]();
    need(zeros != nullptr, "nothrow new[] gave nothing");
    std::iota(numbers, numbers + count, n);
    auto *strings = new std::string[count % 10 + 1];
    for (std::size_t i = 0; i <= count % 10; i++) {
        strings[i].assign(i * 20, 's');
    }
    std::uint64_t sum = std::accumulate(numbers, numbers + count, std::uint64_t{0}) +
                        std::accumulate(zeros, zeros + count, std::uint64_t{0}) +
                        strings[count % 10].size();
    delete[] strings;
    delete[] zeros;
    delete[] numbers;
    return sum;
}

std::uint64_t aligned_forms(std::uint64_t n)
{
    auto *wide = new Wide{};
    auto *nothrow = new (std::nothrow) Wide{};
    auto *array = new Wide[3]{};
    need_aligned(wide);
    need_aligned(nothrow);
    need_aligned(array + 2);
    wide->values[31] = n;
    array[2].values[0] = n;
    std::uint64_t sum = wide->values[31] + nothrow->values[0] + array[2].values[0];
    delete[] array;
    delete nothrow;
    delete wide;
    return sum;
}

// The operators by name, with sizes and alignments passed to delete.
std::uint64_t operator_forms(std::uint64_t n)
{
    std::size_t size = n % 5000 + 1;
    auto align = std::align_val_t{64};
    void *sized = ::operator new(size);
    void *array = ::operator new[](size);
    void *aligned = ::operator new(size, align);
    void *aligned_array = ::operator new[](size, align, std::nothrow);
    need(aligned_array != nullptr, "aligned nothrow new[] gave nothing");
    need(reinterpret_cast<std::uintptr_t>(aligned) % 64 == 0, "a block is not aligned to 64");
    static_cast<char *>(sized)[size - 1] = 1;
    static_cast<char *>(array)[size - 1] = 2;
    std::uint64_t sum = static_cast<std::uint64_t>(static_cast<char *>(sized)[size - 1]) +
                        static_cast<std::uint64_t>(static_cast<char *>(array)[size - 1]);
    ::operator delete[](aligned_array, size, align);
    ::operator delete(aligned, size, align);
    ::operator delete[](array, size);
    ::operator delete(sized, size);
    return sum;
}

std::uint64_t throwing_forms(int n)
{
    try {
        auto made = std::make_unique<Thrower>(n);
        return made->held.size();
    } catch (const std::runtime_error &error) {
        std::exception_ptr kept = std::current_exception();
        try {
            std::rethrow_exception(kept);
        } catch (const std::exception &again) {
            return std::string(again.what()).size() + std::string(error.what()).size();
        }
    }
}

std::uint64_t too_much()
{
    volatile std::size_t huge = PTRDIFF_MAX;
    need(::operator new(huge, std::nothrow) == nullptr, "nothrow new of too much gave a block");
    try {
        void *block = ::operator new(huge);
        ::operator delete(block);
    } catch (const std::bad_alloc &) {
        return 1;
    }
    fail("new of too much did not throw");
}

// Objects that one thread leaves for the next to delete.
class Exchange
{
  public:
    std::unique_ptr<std::vector<std::string>> swap(std::unique_ptr<std::vector<std::string>> given)
    {
        std::lock_guard<std::mutex> guard(lock);
        std::swap(held, given);
        return given;
    }

  private:
    std::mutex lock;
    std::unique_ptr<std::vector<std::string>> held;
};

std::uint64_t work(int seed, Exchange &exchange)
{
    std::uint64_t sum = 0;
    for (int i = 0; i < rounds; i++) {
        auto n = static_cast<std::uint64_t>(i + seed * rounds);
        sum += single_forms(n) + array_forms(n) + aligned_forms(n) + operator_forms(n);
        sum += throwing_forms(i + seed);
        if (i % 50 == 0) {
            exchange.swap(std::make_unique<std::vector<std::string>>(100, std::string(40, 'x')));
            sum += too_much();
        }
    }
    return sum;
}

} // namespace

int main()
{
    Exchange exchange;
    std::vector<std::uint64_t> sums(threads);
    std::vector<std::thread> team;
    for (int i = 0; i < threads; i++) {
        team.emplace_back(
            [&sums, &exchange, i] { sums[static_cast<std::size_t>(i)] = work(i, exchange); });
    }
    for (std::thread &thread : team) {
        thread.join();
    }
    std::printf("checksum %llu\n", static_cast<unsigned long long>(std::accumulate(
                                       sums.begin(), sums.end(), std::uint64_t{0})));
    return 0;
}
