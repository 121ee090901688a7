/* SPDX-License-Identifier: MIT
 *
 * gpualloc::host_vector<T> and gpualloc::device_vector<T>: ga_vector as C++ containers that grow in
 * place. Growth copies nothing, and data() does not change.
 *
 * They are used like std::vector and thrust::device_vector, with these differences:
 *
 *   - T is trivially copyable, and elements are copied as bytes.
 *   - New elements of vector(n), resize(n), append(n) are uninitialised unless a value is passed.
 *   - A moved-from vector can be destroyed or assigned to, and is empty.
 *   - Ranges are of forward iterators. A `const T *` is host memory or, for a device_vector, memory
 *     of any device to which its own device has access; so is a thrust::device_ptr<T>.
 *
 * Under nvcc with Thrust, a device_vector has Thrust's pointers and references: its iterators are
 * passed to Thrust algorithms unchanged, and operator[] copies one element. Otherwise its iterators
 * are addresses on the device, which the host must not dereference; read() copies elements out.
 *
 * Failed calls throw (status.hpp). Sizes are in elements unless stated. Thread safety and stream
 * order as in vector.h.
 */
#ifndef GPUALLOC_VECTOR_HPP
#define GPUALLOC_VECTOR_HPP

#include <gpualloc/status.hpp>
#include <gpualloc/vector.h>

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <type_traits>
#include <utility>

#if defined(__CUDACC__) && defined(__has_include)
#if __has_include(<thrust/device_ptr.h>)
#define GPUALLOC_HAS_THRUST 1
#include <thrust/copy.h>
#include <thrust/device_ptr.h>
#include <thrust/device_reference.h>
#endif
#endif

namespace gpualloc
{

/* Device, stream and limits of a vector: as in ga_arena_options. */
struct where {
    static constexpr int current = -1;

    int device = current;        /* with Thrust the current device of the CUDA runtime, else 0 */
    ga_stream stream = nullptr;  /* as in ga_vector_open() */
    std::uint64_t reserve = 0;   /* bytes */
    std::uint64_t limit = 0;     /* bytes */
    std::uint64_t chunk_max = 0; /* bytes */
    std::uint32_t flags = 0;     /* GA_ARENA_* */
};

template <class T, ga_place Place, class Pointer> class vector;

template <class T> using host_vector = vector<T, GA_PLACE_HOST, T *>;
#ifdef GPUALLOC_HAS_THRUST
template <class T> using device_vector = vector<T, GA_PLACE_DEVICE, thrust::device_ptr<T>>;
#else
template <class T> using device_vector = vector<T, GA_PLACE_DEVICE, T *>;
#endif

namespace detail
{

template <class Iterator, class = void> struct is_iterator : std::false_type {
};
template <class Iterator>
struct is_iterator<Iterator,
                   std::void_t<typename std::iterator_traits<Iterator>::iterator_category>>
    : std::true_type {
};

/* Host-side operations on a kind of pointer. */
template <class Pointer> struct reach;

template <class T> struct reach<T *> {
    static T *raw(T *pointer)
    {
        return pointer;
    }

    static int current_device()
    {
        return 0;
    }

    /* Copy elements of any iterator to position `to` of `whole`. Without Thrust the host cannot
     * write to a device, so the elements are gathered in host memory first. */
    template <class Whole, class Iterator>
    static void copy(Whole &whole, typename Whole::size_type to, Iterator first, Iterator last)
    {
        if constexpr (Whole::place == GA_PLACE_HOST) {
            std::copy(first, last, whole.begin() + static_cast<std::ptrdiff_t>(to));
        } else {
            const host_vector<T> gathered(first, last);
            whole.write(to, gathered.size(), gathered.data());
            whole.wait(); /* the copy reads `gathered` until then */
        }
    }
};

#ifdef GPUALLOC_HAS_THRUST
template <class T> struct reach<thrust::device_ptr<T>> {
    static T *raw(thrust::device_ptr<T> pointer)
    {
        return pointer.get();
    }

    static int current_device()
    {
        int device = 0;
        cudaGetDevice(&device); /* a failure here also makes the vector's opening fail */
        return device;
    }

    /* Thrust copies on a stream of its own choice, and returns when that is done. */
    template <class Whole, class Iterator>
    static void copy(Whole &whole, typename Whole::size_type to, Iterator first, Iterator last)
    {
        whole.wait();
        thrust::copy(first, last, whole.begin() + static_cast<std::ptrdiff_t>(to));
    }
};
#endif

/* Whether an iterator is an address of contiguous T, on the host or the device. */
template <class T, class Iterator>
inline constexpr bool is_address =
    std::is_same_v<Iterator, T *> || std::is_same_v<Iterator, const T *>;
#ifdef GPUALLOC_HAS_THRUST
template <class T> inline constexpr bool is_address<T, thrust::device_ptr<T>> = true;
template <class T> inline constexpr bool is_address<T, thrust::device_ptr<const T>> = true;
#endif

} // namespace detail

template <class T, ga_place Place, class Pointer> class vector
{
    static_assert(std::is_trivially_copyable_v<T>, "elements are copied as bytes");

    template <class Iterator>
    using if_iterator = std::enable_if_t<detail::is_iterator<Iterator>::value>;

  public:
    using value_type = T;
    using size_type = std::size_t;
    using difference_type = std::ptrdiff_t;
    using pointer = Pointer;
    using const_pointer = typename std::pointer_traits<Pointer>::template rebind<const T>;
    using iterator = pointer;
    using const_iterator = const_pointer;
    using reference = decltype(*std::declval<pointer>());
    using const_reference = decltype(*std::declval<const_pointer>());

    static constexpr ga_place place = Place;

    /* ---- construction ------------------------------------------------------------------ */

    explicit vector(const where &at = where()) : where_(at)
    {
        ga_arena_options options = {};
        options.options_size = sizeof options;
        options.place = Place;
        options.device =
            at.device == where::current ? detail::reach<Pointer>::current_device() : at.device;
        options.reserve = at.reserve;
        options.limit = at.limit;
        options.chunk_max = at.chunk_max;
        options.flags = at.flags;
        where_.device = options.device;
        check(ga_vector_open(&handle_, sizeof(T), &options, at.stream));
    }

    explicit vector(size_type n, const where &at = where()) : vector(at)
    {
        resize(n);
    }

    vector(size_type n, const T &value, const where &at = where()) : vector(at)
    {
        resize(n, value);
    }

    template <class Iterator, class = if_iterator<Iterator>>
    vector(Iterator first, Iterator last, const where &at = where()) : vector(at)
    {
        append(first, last);
    }

    vector(std::initializer_list<T> values, const where &at = where()) : vector(at)
    {
        append(values.begin(), values.end());
    }

    vector(const vector &other) : vector(other.where_)
    {
        *this = other;
    }

    vector(vector &&other) noexcept
        : handle_(std::exchange(other.handle_, nullptr)), where_(other.where_)
    {
    }

    ~vector()
    {
        ga_vector_close(handle_);
    }

    /* A moved-from vector is opened again with its former settings. */
    vector &operator=(const vector &other)
    {
        if (!handle_) {
            vector(where_).swap(*this);
        }
        if (other.handle_) {
            check(ga_vector_copy(handle_, other.handle_));
        } else {
            clear();
        }
        return *this;
    }

    vector &operator=(vector &&other) noexcept
    {
        vector(std::move(other)).swap(*this);
        return *this;
    }

    vector &operator=(std::initializer_list<T> values)
    {
        assign(values.begin(), values.end());
        return *this;
    }

    void swap(vector &other) noexcept
    {
        std::swap(handle_, other.handle_);
        std::swap(where_, other.where_);
    }

    /* ---- properties -------------------------------------------------------------------- */

    size_type size() const noexcept
    {
        return ga_vector_size(handle_);
    }

    size_type capacity() const noexcept
    {
        return ga_vector_capacity(handle_);
    }

    size_type max_size() const noexcept
    {
        return static_cast<size_type>(PTRDIFF_MAX) / sizeof(T);
    }

    bool empty() const noexcept
    {
        return size() == 0;
    }

    /* The address as a plain pointer; data() returns the vector's kind of pointer. */
    T *raw() const noexcept
    {
        return static_cast<T *>(ga_vector_data(handle_));
    }

    pointer data() noexcept
    {
        return pointer(raw());
    }

    const_pointer data() const noexcept
    {
        return const_pointer(raw());
    }

    iterator begin() noexcept
    {
        return data();
    }

    iterator end() noexcept
    {
        return data() + static_cast<difference_type>(size());
    }

    const_iterator begin() const noexcept
    {
        return data();
    }

    const_iterator end() const noexcept
    {
        return data() + static_cast<difference_type>(size());
    }

    const_iterator cbegin() const noexcept
    {
        return begin();
    }

    const_iterator cend() const noexcept
    {
        return end();
    }

    reference operator[](size_type i)
    {
        check_reach();
        return data()[static_cast<difference_type>(i)];
    }

    const_reference operator[](size_type i) const
    {
        check_reach();
        return data()[static_cast<difference_type>(i)];
    }

    reference front()
    {
        return (*this)[0];
    }

    const_reference front() const
    {
        return (*this)[0];
    }

    reference back()
    {
        return (*this)[size() - 1];
    }

    const_reference back() const
    {
        return (*this)[size() - 1];
    }

    /* For calls of vector.h. Owned by the vector. */
    ga_vector *handle() const noexcept
    {
        return handle_;
    }

    void wait() const
    {
        check(ga_vector_wait(handle_));
    }

    /* ---- room -------------------------------------------------------------------------- */

    void reserve(size_type n)
    {
        check(ga_vector_reserve(handle_, n));
    }

    void resize(size_type n)
    {
        check(ga_vector_resize(handle_, n));
    }

    void resize(size_type n, const T &value)
    {
        const T copy = value; /* `value` may be an element of this vector */
        const size_type old = size();
        resize(n);
        if (n > old) {
            fill(old, n - old, copy);
        }
    }

    void shrink_to_fit()
    {
        check(ga_vector_shrink_to_fit(handle_));
    }

    void clear() noexcept
    {
        if (handle_) {
            ga_vector_resize(handle_, 0);
        }
    }

    /* ---- elements ---------------------------------------------------------------------- */

    void push_back(const T &value)
    {
        check(ga_vector_push_back(handle_, &value));
    }

    void pop_back()
    {
        resize(size() - 1);
    }

    /* Append `n` uninitialised elements. */
    void append(size_type n)
    {
        check(ga_vector_append(handle_, n, nullptr));
    }

    template <class Iterator, class = if_iterator<Iterator>>
    void append(Iterator first, Iterator last)
    {
        insert(cend(), first, last);
    }

    iterator insert(const_iterator before, const T &value)
    {
        return insert(before, static_cast<size_type>(1), value);
    }

    iterator insert(const_iterator before, size_type n, const T &value)
    {
        const T copy = value; /* `value` may be an element of this vector, and move */
        const size_type at = index_of(before);
        check(ga_vector_insert(handle_, at, n, nullptr));
        fill(at, n, copy);
        return begin() + static_cast<difference_type>(at);
    }

    template <class Iterator, class = if_iterator<Iterator>>
    iterator insert(const_iterator before, Iterator first, Iterator last)
    {
        const size_type at = index_of(before);
        const auto n = static_cast<size_type>(std::distance(first, last));
        if constexpr (detail::is_address<T, Iterator>) {
            check(ga_vector_insert(handle_, at, n,
                                   n ? detail::reach<Iterator>::raw(first) : nullptr));
        } else {
            check(ga_vector_insert(handle_, at, n, nullptr));
            detail::reach<Pointer>::copy(*this, at, first, last);
        }
        return begin() + static_cast<difference_type>(at);
    }

    iterator insert(const_iterator before, std::initializer_list<T> values)
    {
        return insert(before, values.begin(), values.end());
    }

    iterator erase(const_iterator at)
    {
        return erase(at, at + 1);
    }

    iterator erase(const_iterator first, const_iterator last)
    {
        const size_type at = index_of(first);
        check(ga_vector_erase(handle_, at, static_cast<size_type>(last - first)));
        return begin() + static_cast<difference_type>(at);
    }

    void assign(size_type n, const T &value)
    {
        const T copy = value; /* `value` may be an element of this vector */
        clear();
        resize(n, copy);
    }

    template <class Iterator, class = if_iterator<Iterator>>
    void assign(Iterator first, Iterator last)
    {
        clear();
        append(first, last);
    }

    /* fill(): set elements [at, at + n) to `value`. The next two overwrite them from host memory,
     * and copy them out. */
    void fill(size_type at, size_type n, const T &value)
    {
        check(ga_vector_fill(handle_, at, n, &value));
    }

    void write(size_type at, size_type n, const T *from)
    {
        check(ga_vector_write(handle_, at, n, from));
    }

    void read(size_type at, size_type n, T *to) const
    {
        check(ga_vector_read(handle_, at, n, to));
    }

  private:
    static constexpr void check_reach()
    {
        static_assert(Place == GA_PLACE_HOST || !std::is_pointer_v<Pointer>,
                      "the host sees a device's elements through Thrust, or by read()");
    }

    size_type index_of(const_iterator of) const
    {
        return static_cast<size_type>(of - cbegin());
    }

    ga_vector *handle_ = nullptr; /* NULL: moved from */
    where where_;                 /* for copies; its device is resolved */
};

template <class T, ga_place Place, class Pointer>
void swap(vector<T, Place, Pointer> &a, vector<T, Place, Pointer> &b) noexcept
{
    a.swap(b);
}

} // namespace gpualloc

#endif
