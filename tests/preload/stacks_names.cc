// SPDX-License-Identifier: MIT
//
// An allocation by a function with a name of C++, for test_stacks.py.
#include <cstddef>
#include <new>

namespace area
{

template <class T> struct Maker {
    __attribute__((noinline)) T *make(std::size_t count)
    {
        T *made = new T[count];
        made[0] = T();
        return made;
    }
};

} // namespace area

static int *volatile kept;

int main()
{
    area::Maker<int> maker;
    kept = maker.make(100);
    return 0;
}
