/* SPDX-License-Identifier: MIT
 *
 * A record for each executable graph that was instantiated after code was served. The driver
 * refuses updates that move a kernel to another context, so the record stays right until the graph
 * is destroyed. A graph without a record may have kernels of any context.
 *
 *   ga_cuda_graph_instantiated -> add_graph -> add_node   each kernel, also of child graphs
 *
 * STRUCTURE  a list
 * INVARIANT  a record has the contexts of all kernels of its graph, or is_any
 * ORDER      a lock of its own, under which no other is taken and the driver is not called
 */
#include "kernel_graphs.h"

#include "../../liballoc/platform/libc.h"
#include "kernel_contexts.h"
#include "kernel_list.h"
#include "next.h"

#include <pthread.h>

enum {
    CONTEXTS = 16, /* of one graph; with more, all contexts get malloc */
    DEPTH = 16,    /* of child graphs */

    NODE_KERNEL = 0,     /* CU_GRAPH_NODE_TYPE_KERNEL */
    NODE_GRAPH = 4,      /* ..._GRAPH */
    NODE_LAST_KNOWN = 12 /* ..._BATCH_MEM_OP; conditional nodes have graphs that cannot be read */
};

typedef struct record {
    const void *exec;
    bool is_any;
    unsigned count;
    CUcontext contexts[CONTEXTS];
    struct record *next;
} record;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static record *records;

/* ---- functions of the driver ----------------------------------------------------------------- */

/* CUDA_KERNEL_NODE_PARAMS_v2. */
typedef struct kernel_params {
    void *function;
    unsigned sizes[7]; /* of grid, block and dynamic shared memory */
    void **parameters;
    void **extra;
    void *kernel;
    CUcontext context;
} kernel_params;

typedef struct graph_api {
    CUresult (*get_nodes)(void *graph, void **nodes, size_t *count);
    CUresult (*get_type)(void *node, int *type);
    CUresult (*get_kernel)(void *node, kernel_params *params);
    CUresult (*get_child)(void *node, void **graph);
} graph_api;

/* False: the driver is older than CUDA 12. */
static bool find_api(graph_api *api)
{
    *(void **)&api->get_nodes = ga_cuda_next_symbol("cuGraphGetNodes");
    *(void **)&api->get_type = ga_cuda_next_symbol("cuGraphNodeGetType");
    *(void **)&api->get_kernel = ga_cuda_next_symbol("cuGraphKernelNodeGetParams_v2");
    *(void **)&api->get_child = ga_cuda_next_symbol("cuGraphChildGraphNodeGetGraph");
    return api->get_nodes && api->get_type && api->get_kernel && api->get_child;
}

/* ---- reading a graph: false if its contexts are not known ------------------------------------ */

static bool add_context(record *r, CUcontext context)
{
    for (unsigned i = 0; i < r->count; i++) {
        if (r->contexts[i] == context) {
            return true;
        }
    }
    if (!context || r->count == CONTEXTS) {
        return false;
    }
    r->contexts[r->count++] = context;
    return true;
}

static bool add_graph(record *r, const graph_api *api, void *graph, int depth);

static bool add_node(record *r, const graph_api *api, void *node, int depth)
{
    int type;
    void *child;
    kernel_params params = {0};
    if (api->get_type(node, &type) != CUDA_SUCCESS) {
        return false;
    }
    switch (type) {
    case NODE_KERNEL:
        return api->get_kernel(node, &params) == CUDA_SUCCESS && add_context(r, params.context);
    case NODE_GRAPH:
        return api->get_child(node, &child) == CUDA_SUCCESS && add_graph(r, api, child, depth + 1);
    default:
        return type <= NODE_LAST_KNOWN;
    }
}

static bool add_graph(record *r, const graph_api *api, void *graph, int depth)
{
    size_t count = 0;
    if (depth > DEPTH || api->get_nodes(graph, NULL, &count) != CUDA_SUCCESS) {
        return false;
    }
    void **nodes = ga_libc.malloc((count + 1) * sizeof *nodes);
    bool is_known = nodes && api->get_nodes(graph, nodes, &count) == CUDA_SUCCESS;
    for (size_t i = 0; is_known && i < count; i++) {
        is_known = add_node(r, api, nodes[i], depth);
    }
    ga_libc.free(nodes);
    return is_known;
}

/* ---- records --------------------------------------------------------------------------------- */

/* With the lock held. */
static record **find(const void *exec)
{
    record **at = &records;
    while (*at && (*at)->exec != exec) {
        at = &(*at)->next;
    }
    return at;
}

void ga_cuda_graph_destroying(const void *exec)
{
    pthread_mutex_lock(&lock);
    record **at = find(exec);
    record *r = *at;
    if (r) {
        *at = r->next;
    }
    pthread_mutex_unlock(&lock);
    ga_libc.free(r);
}

void ga_cuda_graph_instantiated(const void *exec, void *graph)
{
    graph_api api;
    if (!ga_cuda_kernel_has_served()) {
        return;
    }
    ga_cuda_graph_destroying(exec); /* an earlier one that ended by a call without a hook */
    record *made = ga_libc.calloc(1, sizeof *made);
    if (!made) {
        return;
    }
    made->exec = exec;
    made->is_any = !find_api(&api) || !add_graph(made, &api, graph, 0);
    pthread_mutex_lock(&lock);
    made->next = records;
    records = made;
    pthread_mutex_unlock(&lock);
}

void ga_cuda_graph_launching(const void *exec)
{
    record found = {.is_any = true};
    pthread_mutex_lock(&lock);
    const record *r = *find(exec);
    if (r) {
        found = *r;
    }
    pthread_mutex_unlock(&lock);
    if (found.is_any) {
        ga_cuda_kernel_launching_any();
        return;
    }
    for (unsigned i = 0; i < found.count; i++) {
        if (ga_cuda_listed_may_be_behind(found.contexts[i])) {
            ga_cuda_kernel_launching(found.contexts[i]);
        }
    }
}

void ga_cuda_graphs_child(void)
{
    pthread_mutex_init(&lock, NULL); /* the thread that held it is not in the child */
    records = NULL;
}
