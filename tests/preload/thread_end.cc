/* SPDX-License-Identifier: MIT
 *
 * C++ objects of a thread, whose destructors allocate and free while the thread ends.
 */
#include "check.h"

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace
{

std::atomic<int> ended{0};

struct Holder {
    std::vector<std::string> lines;

    ~Holder()
    {
        std::string all;
        for (const std::string &line : lines) {
            all += line;
        }
        CHECK(all.size() == lines.size() * 50);
        auto copy = std::make_unique<std::vector<std::string>>(lines);
        CHECK(copy->size() == lines.size());
        ended++;
    }
};

thread_local Holder holder;
thread_local std::unique_ptr<char[]> late;

void work(size_t count)
{
    for (size_t i = 0; i < count; i++) {
        holder.lines.emplace_back(50, 'x');
    }
    late.reset(new char[count * 1000]);
}

} // namespace

int main()
{
    for (size_t round = 0; round < 100; round++) {
        std::vector<std::thread> threads;
        for (size_t i = 0; i < 4; i++) {
            threads.emplace_back(work, 10 + i * 20);
        }
        for (std::thread &thread : threads) {
            thread.join();
        }
    }
    CHECK(ended == 400);
    puts("thread ends: 400");
    return 0;
}
