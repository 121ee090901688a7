/* SPDX-License-Identifier: MIT
 *
 * Exchanges over NCCL, which is loaded at run time.
 *
 * Calls of NCCL may wait for other ranks, and so may work on a stream, without a time limit. So a
 * thread watches each communicator (nccl_watch.c), and aborts it (ncclCommAbort) when a call lasts
 * too long; work on a stream is polled. An abort ends the call and the work. A communicator that is
 * being made cannot be aborted: a thread of its own makes it, which is left behind if it takes too
 * long.
 *
 * ORDER  `deadline` is relaxed, because the watch compares it with a clock. `lock` guards `comm`.
 */
#include "nccl.h"

#include "platform/environment.h"
#include "platform/libc.h"

#include <gpualloc/backend.h>

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    OLDEST = 21901, /* before it an abort beside a call was not safe */
    TIME_LIMIT_MS = 600000,
    POLLS = 2000, /* without a sleep */
    NAP_NS = 20000
};

#define NCCL_CONFIG_MAGIC 0xcafebeefu

nccl_functions ga_nccl;

static pthread_once_t once = PTHREAD_ONCE_INIT;
static char missing[160]; /* why there is no NCCL */

/* ---- the library ----------------------------------------------------------------------------- */

/* Where its functions are; RTLD_DEFAULT, which is NULL, if they are linked into the program. False:
 * nowhere, and `missing` says why. */
static bool find_library(void **library)
{
    const char *name = ga_environment("GPUALLOC_NCCL");
    bool is_named = name && *name;
    *library = is_named ? NULL : dlopen("libnccl.so.2", RTLD_NOW | RTLD_NOLOAD);
    if (*library || (!is_named && dlsym(RTLD_DEFAULT, "ncclCommSplit"))) {
        return true;
    }
    *library = dlopen(is_named ? name : "libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
    if (!*library) {
        const char *why = dlerror();
        snprintf(missing, sizeof missing, "%s", why ? why : "no libnccl.so.2");
    }
    return *library;
}

static void load(void)
{
    void *library;
    if (!find_library(&library)) {
        return;
    }
#define NCCL_FIND(name, parameters)                                                                \
    *(void **)&ga_nccl.name = dlsym(library, #name);                                               \
    if (!ga_nccl.name) {                                                                           \
        snprintf(missing, sizeof missing, "it has no " #name);                                     \
        return;                                                                                    \
    }
    NCCL_FUNCTIONS(NCCL_FIND)
#define NCCL_FIND_LATER(name, parameters) *(void **)&ga_nccl.name = dlsym(library, #name);
    NCCL_FUNCTIONS_OF_LATER_VERSIONS(NCCL_FIND_LATER)
    *(void **)&ga_nccl.ncclGetErrorString = dlsym(library, "ncclGetErrorString");
    if (ga_nccl.ncclGetVersion(&ga_nccl.version) != NCCL_SUCCESS || ga_nccl.version < OLDEST) {
        snprintf(missing, sizeof missing, "version %d", ga_nccl.version);
    }
}

static ga_status find_nccl(void)
{
    pthread_once(&once, load);
    return !*missing
               ? GA_OK
               : ga_fail(GA_ERR_UNSUPPORTED, "nccl: %s: expected NCCL 2.19 or later", missing);
}

/* ---- waiting --------------------------------------------------------------------------------- */

static void nap(unsigned polls)
{
    if (polls > POLLS) {
        nanosleep(&(struct timespec){0, NAP_NS}, NULL);
    }
}

/* A group that stays open would keep later calls of this thread, for any communicator. */
static void close_group(nccl_link *l)
{
    if (l->in_group) {
        l->in_group = false;
        ga_nccl_arm(l);
        ga_nccl.ncclGroupEnd();
        __atomic_store_n(&l->deadline, 0, __ATOMIC_RELAXED); /* relaxed: ORDER */
    }
}

static ga_status failed(nccl_link *l, const char *call, int error)
{
    close_group(l);
    ga_nccl_abort(l);
    return ga_fail(GA_ERR_DEVICE, "nccl: rank %u: %s: %s: expected success: aborted", l->rank, call,
                   ga_nccl.ncclGetErrorString ? ga_nccl.ncclGetErrorString(error) : "an error");
}

static ga_status late(nccl_link *l, const char *call)
{
    ga_nccl_abort(l);
    return ga_fail(GA_ERR_DEVICE,
                   "nccl: rank %u: %s: no end after %llu ms: expected that all ranks take part: "
                   "aborted",
                   l->rank, call, (unsigned long long)(l->limit_ns / 1000000u));
}

ga_status ga_nccl_gone(const nccl_link *l)
{
    return l->is_late
               ? ga_fail(GA_ERR_DEVICE,
                         "nccl: rank %u: work that waits for an exchange did not end within %llu "
                         "ms: expected that all ranks take part: aborted",
                         l->rank, (unsigned long long)(l->limit_ns / 1000000u))
               : ga_fail(GA_ERR_DEVICE, "nccl: rank %u: an earlier exchange was aborted", l->rank);
}

ga_status ga_nccl_disarm(nccl_link *l, const char *call, ga_status status)
{
    __atomic_store_n(&l->deadline, 0, __ATOMIC_RELAXED); /* relaxed: ORDER */
    pthread_mutex_lock(&l->lock);
    bool is_late = l->is_late;
    pthread_mutex_unlock(&l->lock);
    return is_late ? late(l, call) : status;
}

/* After ga_nccl_arm() and a call of NCCL. */
static ga_status disarm(nccl_link *l, const char *call, int result)
{
    ga_status status = ga_nccl_disarm(l, call, GA_OK);
    return status ? status : result == NCCL_SUCCESS ? GA_OK : failed(l, call, result);
}

ga_status ga_nccl_wait(void *context, void *stream)
{
    nccl_link *l = context;
    uint64_t start = ga_nccl_now();
    CUresult result = l->driver->cuStreamQuery(stream);
    for (unsigned polls = 0; result == CUDA_ERROR_NOT_READY; polls++) {
        int error = NCCL_SUCCESS;
        if (!l->comm) {
            return ga_nccl_gone(l);
        }
        nap(polls);
        if (polls % 64 == 63) {
            int asked = ga_nccl.ncclCommGetAsyncError(l->comm, &error);
            error = asked == NCCL_SUCCESS ? error : asked;
        }
        if (error != NCCL_SUCCESS) {
            return failed(l, "an exchange", error);
        }
        if (ga_nccl_now() - start > l->limit_ns) {
            return late(l, "an exchange");
        }
        result = l->driver->cuStreamQuery(stream);
    }
    pthread_mutex_lock(&l->lock);
    bool is_gone = !l->comm; /* the watch has ended the wait of the stream */
    pthread_mutex_unlock(&l->lock);
    return is_gone ? ga_nccl_gone(l) : ga_cuda_check(l->driver, result, "cuStreamQuery");
}

/* ---- the exchange ---------------------------------------------------------------------------- */

static ga_status nccl_begin(void *context)
{
    nccl_link *l = context;
    int result = l->comm ? ga_nccl.ncclGroupStart() : NCCL_SUCCESS;
    l->in_group = l->comm && result == NCCL_SUCCESS;
    return !l->comm ? ga_nccl_gone(l) : result ? failed(l, "ncclGroupStart", result) : GA_OK;
}

/* Within a group a call only notes what to do. */
static ga_status nccl_send(void *context, const void *from, uint64_t bytes, uint32_t to,
                           void *stream)
{
    nccl_link *l = context;
    int result = ga_nccl.ncclSend(from, bytes, NCCL_INT8, (int)to, l->comm, stream);
    return result ? failed(l, "ncclSend", result) : GA_OK;
}

static ga_status nccl_receive(void *context, void *to, uint64_t bytes, uint32_t from, void *stream)
{
    nccl_link *l = context;
    int result = ga_nccl.ncclRecv(to, bytes, NCCL_INT8, (int)from, l->comm, stream);
    return result ? failed(l, "ncclRecv", result) : GA_OK;
}

static ga_status nccl_end(void *context, void *stream)
{
    nccl_link *l = context;
    (void)stream;
    ga_nccl_arm(l);
    l->in_group = false;
    return disarm(l, "ncclGroupEnd", ga_nccl.ncclGroupEnd());
}

ga_status ga_nccl_largest(void *context, uint64_t *values, uint32_t count, void *stream)
{
    nccl_link *l = context;
    if (!l->comm) {
        return ga_nccl_gone(l);
    }
    ga_nccl_arm(l);
    return disarm(
        l, "ncclAllReduce",
        ga_nccl.ncclAllReduce(values, values, count, NCCL_UINT64, NCCL_MAX, l->comm, stream));
}

/* If the call takes too long, the watch ends the exchange, and with it the kernels for which the
 * call may wait. */
static void nccl_guard(void *context, bool begins)
{
    nccl_link *l = context;
    if (begins) {
        ga_nccl_arm(l);
        return;
    }
    pthread_mutex_lock(&l->lock);
    __atomic_store_n(&l->deadline, 0, __ATOMIC_RELAXED); /* relaxed: ORDER */
    pthread_mutex_unlock(&l->lock);
}

/* Messages in registered memory go directly from one device to another. Without it they go through
 * buffers of NCCL, so a failure is none. */
static void nccl_register(void *context, void *block, uint64_t bytes)
{
    nccl_link *l = context;
    for (int i = 0; l->comm && ga_nccl.ncclCommRegister && i < GA_NCCL_BLOCKS; i++) {
        if (!l->blocks[i].block) {
            bool is_registered = ga_nccl.ncclCommRegister(l->comm, block, bytes,
                                                          &l->blocks[i].handle) == NCCL_SUCCESS;
            l->blocks[i].block = is_registered ? block : NULL;
            return;
        }
    }
}

static void nccl_deregister(void *context, void *block)
{
    nccl_link *l = context;
    ga_nccl_await_abort(l);
    for (int i = 0; i < GA_NCCL_BLOCKS; i++) {
        if (l->blocks[i].block == block) {
            if (l->comm) {
                ga_nccl.ncclCommDeregister(l->comm, l->blocks[i].handle);
            }
            l->blocks[i].block = NULL;
        }
    }
}

static void nccl_abort(void *context)
{
    nccl_link *l = context;
    close_group(l);
    ga_nccl_abort(l);
}

static void nccl_close(void *context)
{
    nccl_link *l = context;
    ga_nccl_unshare(l, l->window.block); /* if the table has not done it */
    if (l->comm) {
        (void)ga_nccl.ncclCommDestroy(l->comm);
        pthread_mutex_lock(&l->lock);
        l->comm = NULL;
        pthread_mutex_unlock(&l->lock);
    }
    ga_nccl_end_watch(l);
    ga_libc.free(l);
}

/* A communicator that is being made, and a window in it. The last of the thread and the caller
 * frees it. */
typedef struct nccl_split {
    void *comm, *made;
    void *block, *window; /* no block, no window: NULL */
    uint64_t bytes;
    int rank, device, result;
    bool is_made, is_left; /* guarded by `lock`, as is `made` */
    pthread_mutex_t lock;
    pthread_cond_t ending;
} nccl_split;

static void free_split(nccl_split *s)
{
    pthread_cond_destroy(&s->ending);
    pthread_mutex_destroy(&s->lock);
    ga_libc.free(s);
}

/* Notes the communicator, perhaps in spite of an error. True: the caller has left. */
static bool note_comm(nccl_split *s, void *made)
{
    pthread_mutex_lock(&s->lock);
    s->made = s->is_left ? NULL : made;
    bool is_left = s->is_left;
    pthread_mutex_unlock(&s->lock);
    return is_left;
}

/* After an error of the window, so that other ranks do not wait for it. */
static void drop_comm(nccl_split *s, void *made)
{
    pthread_mutex_lock(&s->lock);
    bool is_left = s->is_left;
    s->made = is_left ? s->made : NULL;
    pthread_mutex_unlock(&s->lock);
    if (!is_left) {
        ga_nccl.ncclCommAbort(made);
    }
}

/* True: the caller has left. */
static bool note_end(nccl_split *s, int result, void *window)
{
    pthread_mutex_lock(&s->lock);
    bool is_left = s->is_left;
    s->is_made = true;
    s->window = window;
    s->result = result;
    pthread_cond_signal(&s->ending);
    pthread_mutex_unlock(&s->lock);
    return is_left;
}

/* NCCL makes the device current that was so before, and with it a context there: that of the
 * communicator, and not of the first device. */
static void *make_split(void *context)
{
    nccl_split *s = context;
    ga_cuda_scope scope;
    nccl_config config = {sizeof config, NCCL_CONFIG_MAGIC, OLDEST, 1,      INT_MIN,
                          INT_MIN,       INT_MIN,           NULL,   INT_MIN};
    void *made = NULL;
    void *window = NULL;
    bool has_entered = ga_cuda_enter(&scope, s->device) == GA_OK;
    int result = ga_nccl.ncclCommSplit(s->comm, 0, s->rank, &made, &config);
    bool is_early = note_comm(s, made);
    if (!is_early && result == NCCL_SUCCESS && s->block &&
        ga_nccl.ncclCommWindowRegister(made, s->block, s->bytes, &window, NCCL_WINDOW_SYMMETRIC)) {
        window = NULL;
        drop_comm(s, made);
    }
    if (note_end(s, result, window)) {
        if (is_early && made) { /* one that it has seen the caller aborts */
            ga_nccl.ncclCommAbort(made);
        }
        free_split(s);
    }
    if (has_entered) {
        ga_cuda_leave(&scope);
    }
    return NULL;
}

/* Waits for the thread until the time limit. True: it has ended. */
static bool wait_for_split(nccl_split *s, uint64_t limit_ns)
{
    struct timespec until = ga_nccl_time_of(ga_nccl_now() + limit_ns);
    int error = 0;
    pthread_mutex_lock(&s->lock);
    while (!s->is_made && error == 0) {
        error = pthread_cond_timedwait(&s->ending, &s->lock, &until);
    }
    bool is_made = s->is_made;
    void *made = s->made;
    s->is_left = !is_made;
    pthread_mutex_unlock(&s->lock);
    if (!is_made && made) { /* other ranks do not come for the window */
        ga_nccl.ncclCommAbort(made);
    }
    return is_made;
}

/* The thread may still use the communicator that is split. If it is this exchange's, it stays. */
static ga_status late_split(nccl_link *l, const void *comm)
{
    pthread_mutex_lock(&l->lock);
    if (comm == l->comm) {
        l->comm = NULL;
        l->is_aborted = true;
        l->window.block = NULL; /* the thread registers it */
    }
    pthread_mutex_unlock(&l->lock);
    return late(l, "ncclCommSplit");
}

ga_status ga_nccl_split(nccl_link *l, void *comm, void *block, uint64_t bytes, void **out,
                        void **handle)
{
    pthread_t thread;
    nccl_split *s = ga_libc.calloc(1, sizeof *s);
    if (!s) {
        return ga_fail(GA_ERR_MEMORY, "nccl: no memory for a communicator");
    }
    *s = (nccl_split){
        .comm = comm, .block = block, .bytes = bytes, .rank = (int)l->rank, .device = l->device};
    pthread_mutex_init(&s->lock, NULL);
    ga_nccl_init_condition(&s->ending);
    ga_status status = ga_nccl_start_thread(&thread, make_split, s);
    if (status != GA_OK) {
        free_split(s);
        return status;
    }
    if (!wait_for_split(s, l->limit_ns)) {
        pthread_detach(thread);
        return late_split(l, comm);
    }
    pthread_join(thread, NULL);
    int result = s->result;
    *out = s->made;
    *handle = s->window;
    free_split(s);
    return result ? failed(l, "ncclCommSplit", result) : GA_OK;
}

static ga_status split(nccl_link *l, void *comm, ga_exchange *out)
{
    int rank = 0;
    int ranks = 0;
    void *none;
    int result = ga_nccl.ncclCommUserRank(comm, &rank);
    result = result ? result : ga_nccl.ncclCommCount(comm, &ranks);
    result = result ? result : ga_nccl.ncclCommCuDevice(comm, &out->device);
    l->rank = out->rank = (uint32_t)rank;
    l->ranks = out->ranks = (uint32_t)ranks;
    l->device = out->device;
    if (result != NCCL_SUCCESS) {
        return failed(l, "the communicator", result);
    }
    return ga_nccl_split(l, comm, NULL, 0, &l->comm, &none);
}

ga_status ga_exchange_nccl(ga_exchange *out, void *comm, const ga_nccl_options *options)
{
    static const ga_nccl_options defaults = {.options_size = sizeof defaults};
    options = options ? options : &defaults;
    if (!comm || options->options_size != sizeof *options ||
        (options->flags & ~(uint32_t)GA_NCCL_NO_WINDOWS) || options->reserved) {
        return ga_fail(GA_ERR_ARGUMENT,
                       "nccl: %s communicator, options of %u bytes, flags=0x%x, reserved=%u: "
                       "expected one, %zu, 0 or 1, and 0",
                       comm ? "a" : "no", options->options_size, options->flags, options->reserved,
                       sizeof *options);
    }
    ga_status status = find_nccl();
    nccl_link *l = status ? NULL : ga_libc.calloc(1, sizeof *l);
    if (!l) {
        return status ? status : ga_fail(GA_ERR_MEMORY, "nccl: no memory for an exchange");
    }
    uint64_t limit = options->time_limit_ms ? options->time_limit_ms : TIME_LIMIT_MS;
    l->limit_ns = limit * 1000000u;
    l->flags = options->flags;
    *out = (ga_exchange){.exchange_size = sizeof *out,
                         .context = l,
                         .begin = nccl_begin,
                         .send = nccl_send,
                         .receive = nccl_receive,
                         .end = nccl_end,
                         .largest = ga_nccl_largest,
                         .wait = ga_nccl_wait,
                         .abort = nccl_abort,
                         .register_memory = nccl_register,
                         .deregister_memory = nccl_deregister,
                         .share = ga_nccl_share,
                         .unshare = ga_nccl_unshare,
                         .meet = ga_nccl_meet,
                         .put = ga_nccl_put,
                         .fetch = ga_nccl_fetch,
                         .guard = nccl_guard,
                         .close = nccl_close};
    status = ga_nccl_begin_watch(l);
    status = status ? status : ga_cuda_driver_get(&l->driver);
    status = status ? status : split(l, comm, out);
    if (status != GA_OK) {
        nccl_close(l);
    }
    return status;
}
