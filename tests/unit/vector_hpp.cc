/* SPDX-License-Identifier: MIT
 *
 * The C++ vectors without CUDA: compared with std::vector, on the host and on a device made of host
 * memory. tests/device/vector_tests.cu tests them with Thrust.
 */
#include <gpualloc/vector.hpp>

#include <criterion/criterion.h>

#include <list>
#include <vector>

extern "C" {
#include "support/random.h"
#include "support/vmm_driver.h"
}

using gpualloc::device_vector;
using gpualloc::host_vector;

namespace
{

/* The contents, on the host or on the device. */
template <class Vector> std::vector<typename Vector::value_type> contents(const Vector &v)
{
    std::vector<typename Vector::value_type> out(v.size());
    v.read(0, v.size(), out.data());
    return out;
}

/* Runs with a device made of host memory, on which nothing may be left. */
template <class Body> void with_device(Body body)
{
    vmm_driver_start(nullptr);
    body();
    vmm_driver_counts now = vmm_driver_count();
    cr_assert_eq(now.ranges + now.chunks + now.handles + now.mappings, 0u);
    vmm_driver_stop();
}

/* One step of a random sequence, on both vectors. */
template <class Vector> void step(Vector &v, std::vector<int> &s, uint64_t *random)
{
    const int value = static_cast<int>(random_below(random, 1000));
    const auto at = static_cast<std::ptrdiff_t>(random_below(random, s.size() + 1));
    const auto n = random_below(random, 50);
    const std::list<int> other(n, value + 1);
    switch (random_below(random, 8)) {
    case 0:
        v.push_back(value);
        s.push_back(value);
        break;
    case 1:
        v.insert(v.begin() + at, value);
        s.insert(s.begin() + at, value);
        break;
    case 2:
        v.insert(v.begin() + at, n, value);
        s.insert(s.begin() + at, n, value);
        break;
    case 3:
        v.insert(v.begin() + at, other.begin(), other.end());
        s.insert(s.begin() + at, other.begin(), other.end());
        break;
    case 4:
        v.erase(v.begin() + at, v.end());
        s.erase(s.begin() + at, s.end());
        break;
    case 5:
        v.resize(n * 10, value);
        s.resize(n * 10, value);
        break;
    case 6:
        v.append(other.begin(), other.end());
        s.insert(s.end(), other.begin(), other.end());
        break;
    default:
        v.assign(n, value);
        s.assign(n, value);
    }
}

template <class Vector> void does_what_std_vector_does()
{
    uint64_t random = 3;
    Vector v;
    std::vector<int> s;
    for (int i = 0; i < 400; i++) {
        step(v, s, &random);
        cr_assert(contents(v) == s, "after step %d", i);
    }
}

template <class Vector> void is_copied_and_moved()
{
    Vector a{1, 2, 3};
    const std::vector<int> expected{1, 2, 3};
    Vector b(a);
    a.fill(0, 3, 9);
    cr_assert(contents(b) == expected);
    a = b;
    cr_assert(contents(a) == expected);
    const int *data = b.raw();
    Vector c(std::move(b));
    cr_assert(c.raw() == data && b.empty() && b.raw() == nullptr && b.capacity() == 0);
    b.clear();
    b = c; /* a vector that was moved from opens anew */
    cr_assert(contents(b) == expected && b.raw() != data);
    a = std::move(c);
    cr_assert(a.raw() == data && c.empty());
    swap(a, b);
    cr_assert(b.raw() == data);
    b = {4, 5};
    cr_assert(contents(b) == std::vector<int>({4, 5}));
    Vector d(std::move(c)); /* twice */
    b = d;
    cr_assert(b.empty());
}

} // namespace

Test(vector_hpp, does_what_std_vector_does_host)
{
    does_what_std_vector_does<host_vector<int>>();
}

Test(vector_hpp, does_what_std_vector_does_device)
{
    with_device(does_what_std_vector_does<device_vector<int>>);
}

Test(vector_hpp, is_copied_and_moved_host)
{
    is_copied_and_moved<host_vector<int>>();
}

Test(vector_hpp, is_copied_and_moved_device)
{
    with_device(is_copied_and_moved<device_vector<int>>);
}

/* Bytes from host to device and back, by pointers of both. */
Test(vector_hpp, goes_to_the_device_and_back)
{
    with_device([] {
        const std::vector<double> from{1.5, 2.5, 3.5};
        device_vector<double> on_device(from.begin(), from.end());
        on_device.append(from.data(), from.data() + 3);
        device_vector<double> again(on_device.begin(), on_device.end()); /* within the device */
        cr_assert(contents(again) == std::vector<double>({1.5, 2.5, 3.5, 1.5, 2.5, 3.5}));
    });
}

Test(vector_hpp, works_with_algorithms)
{
    host_vector<int> v(1000);
    for (size_t i = 0; i < v.size(); i++) {
        v[i] = static_cast<int>(i * 7919 % 1000);
    }
    std::sort(v.begin(), v.end());
    const host_vector<int> &sorted = v;
    cr_assert(std::is_sorted(sorted.begin(), sorted.end()));
    cr_assert(v.front() == 0 && v.back() == 999 && sorted[500] == 500);
    int sum = 0;
    for (int x : sorted) {
        sum += x;
    }
    cr_assert_eq(sum, 499500);
}

/* Values that are the vector's own, and lie where things move. */
Test(vector_hpp, takes_its_own_values)
{
    host_vector<int> v{1, 2, 3};
    for (int i = 0; i < 2000; i++) {
        v.insert(v.begin(), v.back());
    }
    v.push_back(v[0]);
    v.resize(3000, v[2001]);
    cr_assert(v[0] == 3 && v[1999] == 3 && v[2000] == 1 && v[2003] == 3);
    cr_assert(v[2999] == 2);
    v.assign(5, v[2]);
    cr_assert(contents(v) == std::vector<int>(5, 3));
}

Test(vector_hpp, holds_what_is_no_number)
{
    struct point {
        char name[3];
        double x;
    };
    host_vector<point> points(2, point{"ab", 1.0});
    points.push_back(point{"cd", 2.0});
    cr_assert(points[2].x == 2.0 && points[1].name[0] == 'a');
    const std::vector<bool> bits{true, false, true};
    host_vector<bool> v(bits.begin(), bits.end());
    cr_assert(v[0] && !v[1] && v[2]);
}

/* The address never changes, with any reserve or shrink. */
Test(vector_hpp, stays_where_it_is)
{
    host_vector<int> v(1, 5);
    const int *first = v.raw();
    v.reserve(10000000);
    cr_assert(v.capacity() >= 10000000);
    v.resize(9000000, 6);
    v.resize(1);
    v.shrink_to_fit();
    cr_assert(v.capacity() < 100000);
    v.pop_back();
    cr_assert(v.empty() && v.raw() == first && v.data() == first);
}

template <class Exception, class Body> static ga_status thrown(Body body)
{
    try {
        body();
    } catch (const Exception &caught) {
        cr_assert(std::strlen(caught.what()) > 0);
        if constexpr (std::is_same_v<Exception, gpualloc::error>) {
            return caught.status();
        }
        return GA_ERR_MEMORY;
    }
    return GA_OK;
}

Test(vector_hpp, throws)
{
    gpualloc::where small;
    small.limit = 1 << 20;
    host_vector<char> v(small);
    cr_assert_eq(thrown<std::bad_alloc>([&] { v.resize(2 << 20); }), GA_ERR_MEMORY);
    cr_assert_eq(thrown<gpualloc::error>([&] { v.resize(v.max_size() + 1); }), GA_ERR_SIZE);
    cr_assert_eq(thrown<gpualloc::error>([&] { v.pop_back(); }), GA_ERR_SIZE);
    cr_assert_eq(thrown<gpualloc::error>([&] { v.erase(v.begin()); }), GA_ERR_ARGUMENT);
    v.resize(1 << 20, 'x');
    cr_assert_eq(thrown<std::bad_alloc>([&] { host_vector<char> w(2 << 20, small); }),
                 GA_ERR_MEMORY);
    with_device([] {
        gpualloc::where nowhere;
        nowhere.device = 7;
        cr_assert_eq(thrown<gpualloc::error>([&] { device_vector<int> w(nowhere); }),
                     GA_ERR_DEVICE);
        nowhere.device = -2;
        cr_assert_eq(thrown<gpualloc::error>([&] { device_vector<int> w(nowhere); }),
                     GA_ERR_DEVICE);
    });
}
