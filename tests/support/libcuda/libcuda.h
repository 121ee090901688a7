/* SPDX-License-Identifier: MIT
 *
 * A libcuda.so.1 for tests on machines without a GPU: vmm_driver.h behind the driver's own symbols,
 * with memory pools, captures, a second kind of context and both cuGetProcAddress(). The other
 * functions of the hook table return as documented at stand_in_echo(). It is not a driver for the
 * CUDA runtime, which needs private tables of the driver.
 *
 * STAND_IN_DEVICES, STAND_IN_SM (90: compute capability 9.0), STAND_IN_MEMORY, STAND_IN_PINNED
 * (bytes, pinned at once), STAND_IN_NO_FD (1: no memory for other processes) and STAND_IN_NO_RDMA
 * (1: no network cards) in the environment describe the machine. Programs find the functions below
 * by dlsym().
 */
#ifndef GPUALLOC_TESTS_SUPPORT_LIBCUDA_H
#define GPUALLOC_TESTS_SUPPORT_LIBCUDA_H

#include "../../../interpose/cuda/hooks.h"
#include "../vmm_driver.h"

#define STAND_IN_API __attribute__((visibility("default")))

typedef uintptr_t stand_in_word;
typedef CUresult stand_in_function(stand_in_word a, stand_in_word b, stand_in_word c,
                                   stand_in_word d, stand_in_word e, stand_in_word f);

enum {
    STAND_IN_CAPTURES = 16,    /* streams capturing at once */
    STAND_IN_ECHO_BASE = 5000, /* plus the row's number: the arguments arrived */
    STAND_IN_GARBLED = 4999
};

/* From now on each function of the table returns STAND_IN_ECHO_BASE and its row's number, if its
 * six arguments are 11, 22, 33, 44, 55 and 66. */
STAND_IN_API void stand_in_echo(bool on);

/* The next `n` calls of that symbol fail with `error`, and do nothing. */
STAND_IN_API void stand_in_fail(const char *symbol, int n, CUresult error);

/* The next call of that symbol, or of cuLinkComplete or cuLibraryGetGlobal, first calls `run`. With
 * `attached`, cuCtxAttach() does when it has attached. */
STAND_IN_API void stand_in_meanwhile(const char *symbol, void (*run)(void));

/* The n-th call from now on that reaches vmm_driver fails with `error`, and so do `more` after it;
 * n = 0: no call. stand_in_has_failed(): true if the n-th call was made. See
 * vmm_driver_fail_many(). */
STAND_IN_API void stand_in_fail_any(uint64_t n, uint64_t more, CUresult error);
STAND_IN_API bool stand_in_has_failed(void);

/* Calls so far of a function of the table, by its symbol. */
STAND_IN_API uint64_t stand_in_calls(const char *symbol);

/* Calls so far that reached vmm_driver, from any caller; see vmm_driver_calls(). */
STAND_IN_API uint64_t stand_in_arrived(const char *name);

STAND_IN_API vmm_driver_counts stand_in_count(void);
STAND_IN_API bool stand_in_accessible(const void *start, size_t size, unsigned devices);
STAND_IN_API void stand_in_hold(CUstream stream);
STAND_IN_API void stand_in_let_go(CUstream stream);
STAND_IN_API void stand_in_shut_down(void);

/* Calls that a capture under way forbids, and blocks that became nodes of a graph. */
STAND_IN_API uint64_t stand_in_violations(void);
STAND_IN_API uint64_t stand_in_nodes(void);

/* cuDevicePrimaryCtxRetain(), by a name that no library interposes. */
STAND_IN_API CUresult stand_in_retain(CUcontext *context, CUdevice device);

/* End a context that is not a device's own, by a call that no library interposes. The next one that
 * is created has its handle. */
STAND_IN_API CUresult stand_in_end_context(CUcontext context);

/* Calls so far that made a context current which is gone. */
STAND_IN_API int stand_in_bad_pushes(void);

/* The number of graphs; a capture makes one. cuGraphDestroy() calls the destructors of retained
 * objects. */
STAND_IN_API uint64_t stand_in_graphs(void);

/* A graph without nodes; and a node in it, of a type of CUgraphNodeType. Type 0 is a kernel in
 * `context`, type 4 has the nodes of `child`. */
STAND_IN_API void *stand_in_new_graph(void);
STAND_IN_API void stand_in_add_to(void *graph, int type, CUcontext context, void *child);

/* Calls that read the nodes of a graph so far. */
STAND_IN_API uint64_t stand_in_graph_reads(void);

/* Modules and libraries: images that arrived, in order; file names are images, too. Returns a copy
 * of a cubin, and NULL for others. `*passed` is the address that the caller gave. */
STAND_IN_API int stand_in_images(void);
STAND_IN_API const void *stand_in_image(int number, const void **passed);

/* The variable GA_CUBIN_VARIABLE of a module, or of a library in the current context; NULL: it has
 * none. It begins with the values of relocations in each context, and again after a reset: each is
 * STAND_IN_NONE, as if it were of GA_CUBIN_NONE. */
STAND_IN_API const uint64_t *stand_in_calls_of(CUmodule code);

/* The word in slot `i` of code with that variable: see GA_CUBIN_SLOTS. */
STAND_IN_API uint64_t stand_in_slot_of(CUmodule code, int i);

/* The preload's module that was loaded last in the current context: the first of the addresses that
 * it has for its functions. They are other ones for each load. 0: there is none. */
STAND_IN_API uint64_t stand_in_functions(void);
#define STAND_IN_FUNCTIONS UINT64_C(0x7f8123456780) /* of the first image */
#define STAND_IN_NONE      UINT64_C(0x7f8100000100)
#define STAND_IN_STEP      UINT64_C(0x1000) /* from one function to the next */

/* The next `n` look-ups of variables give `result`. Returns how many were to do so yet. */
STAND_IN_API int stand_in_refuse_variables(int n, CUresult result);

/* Questions about devices that do not exist. A tool like compute-sanitizer reports errors of the
 * driver's calls. */
STAND_IN_API int stand_in_bad_devices(void);

/* Calls with a module or library that is gone. */
STAND_IN_API int stand_in_stale(void);
/* Results of the linker so far; and the value of an option of its last state. False: the state has
 * no such option. */
STAND_IN_API uint64_t stand_in_links(void);
/* The next `n` calls of cuLinkCreate() fail. */
STAND_IN_API void stand_in_fail_links(int n, CUresult error);
STAND_IN_API bool stand_in_link_option(int option, uint32_t *value);

#define STAND_IN_LINK_ERROR "ptxas fatal   : Unresolved\nptxas fatal   : Aborted\n"

/* The context that was current when the last state was made. */
STAND_IN_API CUcontext stand_in_link_context(void);

/* The first 16 KiB of the linker's last input. */
STAND_IN_API const void *stand_in_link_input(size_t *size);

/* ---- between its files --------------------------------------------------------------------- */

extern ga_cuda_driver stand_in_table; /* vmm_driver's */

/* Begin, on first need. Returns the error of a call that is not permitted: before cuInit(), in a
 * child of fork(). */
CUresult stand_in_arrive(bool needs_init);

/* Functions of the hook table that vmm_driver has not, in contexts.c, graphs.c, others.c, memory.c
 * and modules.c; NULL: not there. */
stand_in_function *stand_in_own_context(const char *symbol);
stand_in_function *stand_in_own_graph(const char *symbol);
stand_in_function *stand_in_other_context(const char *symbol);
stand_in_function *stand_in_own_memory(const char *symbol);
stand_in_function *stand_in_own_module(const char *symbol);

/* cuGraphInstantiateWithFlags(), which no library interposes. */
stand_in_function stand_in_graph_instantiate;

/* End the captures that began in a context. */
void stand_in_captures_gone(CUcontext context);

/* Call what stand_in_meanwhile() wants called. */
void stand_in_during(const char *symbol);

/* Count a call of a function of the hook table that is defined elsewhere. */
void stand_in_called(const char *symbol);

/* Returns true if the stream captures; one more block is a node of its graph. */
bool stand_in_capturing(CUstream stream);
void stand_in_add_node(void);

STAND_IN_API CUresult cuCtxGetDevice(CUdevice *device);
STAND_IN_API CUresult cuCtxGetCurrent(CUcontext *context);

/* Drop the modules of a context, and the variables that libraries have there. */
void stand_in_modules_gone(CUcontext context);

/* Whether a context is not a device's own. */
bool stand_in_is_other(CUcontext context);

/* False: the current context is a device's own, or there is none. */
bool stand_in_other_device(CUdevice *device);

/* graphs.c: the graphs of captures, the capture mode of a thread, and streams that wait for the
 * legacy one. */
typedef struct stand_in_graph stand_in_graph;
stand_in_graph *stand_in_graph_create(void);
stand_in_graph *stand_in_graph_of(CUstream stream);
void stand_in_graph_destroy(stand_in_graph *graph);
int stand_in_thread_mode(void);
void stand_in_violate(void);
void stand_in_blocking_stream(CUstream stream, bool blocking);
bool stand_in_is_blocking(CUstream stream);

/* A call that a capture of another kind than relaxed forbids; `always`: of any kind. */
CUresult stand_in_unsafe(bool always);

#endif
