/* SPDX-License-Identifier: MIT
 *
 * The graph that a capture becomes: it holds user objects. Nodes are in the graphs of
 * stand_in_new_graph() alone, and nothing runs. Also the capture mode of each thread, and the
 * streams that wait for the legacy one.
 */
#include "libcuda.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum {
    OBJECTS = 64,  /* that one graph retains */
    NODES = 32,    /* of one graph */
    STREAMS = 1024 /* that wait for the legacy stream */
};

typedef struct user_object {
    void *pointer;
    void (*destroy)(void *pointer);
} user_object;

typedef struct graph_node {
    int type;
    CUcontext context;
    stand_in_graph *child;
} graph_node;

struct stand_in_graph {
    uint64_t number;
    graph_node nodes[NODES];
    size_t node_count;
    user_object *objects[OBJECTS];
    int count;
    struct stand_in_graph *following;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static CUstream blocking[STREAMS];
static stand_in_graph *graphs; /* all graphs; guarded by `lock`, as are the following */
static uint64_t last_number, alive;

/* ---- graphs -------------------------------------------------------------------------------- */

stand_in_graph *stand_in_graph_create(void)
{
    stand_in_graph *graph = calloc(1, sizeof *graph);
    pthread_mutex_lock(&lock);
    graph->number = ++last_number;
    graph->following = graphs;
    graphs = graph;
    alive++;
    pthread_mutex_unlock(&lock);
    return graph;
}

static void *end_objects(void *context)
{
    stand_in_graph *graph = context;
    for (int i = 0; i < graph->count; i++) {
        graph->objects[i]->destroy(graph->objects[i]->pointer);
        free(graph->objects[i]);
    }
    free(graph);
    return NULL;
}

static void unlink_graph(const stand_in_graph *graph)
{
    pthread_mutex_lock(&lock);
    stand_in_graph **at = &graphs;
    while (*at != graph) {
        at = &(*at)->following;
    }
    *at = graph->following;
    alive--;
    pthread_mutex_unlock(&lock);
}

/* In a thread of the driver, as the real one does. */
void stand_in_graph_destroy(stand_in_graph *graph)
{
    pthread_t thread;
    if (graph) {
        unlink_graph(graph);
        pthread_create(&thread, NULL, end_objects, graph);
        pthread_join(thread, NULL);
    }
}

uint64_t stand_in_graphs(void)
{
    pthread_mutex_lock(&lock);
    uint64_t now = alive;
    pthread_mutex_unlock(&lock);
    return now;
}

STAND_IN_API CUresult cuGraphDestroy(stand_in_graph *graph);
STAND_IN_API CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id,
                                                stand_in_graph **graph, const void **nodes,
                                                size_t *count);
STAND_IN_API CUresult cuUserObjectCreate(user_object **object, void *pointer,
                                         void (*destroy)(void *pointer), unsigned count,
                                         unsigned flags);
STAND_IN_API CUresult cuGraphRetainUserObject(stand_in_graph *graph, user_object *object,
                                              unsigned count, unsigned flags);

CUresult cuGraphDestroy(stand_in_graph *graph)
{
    stand_in_graph_destroy(graph);
    return CUDA_SUCCESS;
}

CUresult cuStreamGetCaptureInfo_v2(CUstream stream, int *status, uint64_t *id,
                                   stand_in_graph **graph, const void **nodes, size_t *count)
{
    stand_in_graph *found = stand_in_graph_of(stream);
    *status = found != NULL;
    if (found) {
        *id = found->number;
        *graph = found;
    }
    return nodes || count ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
}

/* Only in the form in which the graph takes over the object with one reference. */
CUresult cuUserObjectCreate(user_object **object, void *pointer, void (*destroy)(void *pointer),
                            unsigned count, unsigned flags)
{
    if (count != 1 || flags != 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *object = malloc(sizeof **object);
    **object = (user_object){pointer, destroy};
    return CUDA_SUCCESS;
}

CUresult cuGraphRetainUserObject(stand_in_graph *graph, user_object *object, unsigned count,
                                 unsigned flags)
{
    if (!graph || graph->count == OBJECTS || count != 1 || flags != 1) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    graph->objects[graph->count++] = object;
    return CUDA_SUCCESS;
}

/* ---- nodes, and executable graphs ------------------------------------------------------------ */

static uint64_t reads;

void *stand_in_new_graph(void)
{
    return stand_in_graph_create();
}

void stand_in_add_to(void *graph, int type, CUcontext context, void *child)
{
    stand_in_graph *to = graph;
    to->nodes[to->node_count++] = (graph_node){type, context, child};
}

uint64_t stand_in_graph_reads(void)
{
    return __atomic_load_n(&reads, __ATOMIC_RELAXED); /* a figure */
}

/* CUDA_KERNEL_NODE_PARAMS_v2. */
typedef struct kernel_params {
    void *function;
    unsigned sizes[7];
    void **parameters;
    void **extra;
    void *kernel;
    CUcontext context;
} kernel_params;

STAND_IN_API CUresult cuGraphGetNodes(stand_in_graph *graph, graph_node **nodes, size_t *count);
STAND_IN_API CUresult cuGraphNodeGetType(const graph_node *node, int *type);
STAND_IN_API CUresult cuGraphKernelNodeGetParams_v2(const graph_node *node, kernel_params *params);
STAND_IN_API CUresult cuGraphChildGraphNodeGetGraph(const graph_node *node, stand_in_graph **graph);

CUresult cuGraphGetNodes(stand_in_graph *graph, graph_node **nodes, size_t *count)
{
    __atomic_fetch_add(&reads, 1, __ATOMIC_RELAXED); /* a figure */
    for (size_t i = 0; nodes && i < *count && i < graph->node_count; i++) {
        nodes[i] = &graph->nodes[i];
    }
    *count = graph->node_count;
    return CUDA_SUCCESS;
}

CUresult cuGraphNodeGetType(const graph_node *node, int *type)
{
    *type = node->type;
    return CUDA_SUCCESS;
}

CUresult cuGraphKernelNodeGetParams_v2(const graph_node *node, kernel_params *params)
{
    if (node->type != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *params = (kernel_params){.context = node->context};
    return CUDA_SUCCESS;
}

CUresult cuGraphChildGraphNodeGetGraph(const graph_node *node, stand_in_graph **graph)
{
    *graph = node->child;
    return node->type == 4 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult instantiate(stand_in_word out, stand_in_word graph, stand_in_word c,
                            stand_in_word d, stand_in_word e, stand_in_word f)
{
    (void)graph, (void)c, (void)d, (void)e, (void)f;
    *(void **)out = malloc(1);
    return CUDA_SUCCESS;
}

static CUresult destroy_exec(stand_in_word exec, stand_in_word b, stand_in_word c, stand_in_word d,
                             stand_in_word e, stand_in_word f)
{
    (void)b, (void)c, (void)d, (void)e, (void)f;
    free((void *)exec);
    return CUDA_SUCCESS;
}

stand_in_function *stand_in_own_graph(const char *symbol)
{
    if (strncmp(symbol, "cuGraphInstantiate", strlen("cuGraphInstantiate")) == 0) {
        return instantiate;
    }
    return strcmp(symbol, "cuGraphExecDestroy") == 0 ? destroy_exec : NULL;
}

/* ---- modes --------------------------------------------------------------------------------- */

static _Thread_local int thread_mode; /* global, as every thread begins */

STAND_IN_API CUresult cuThreadExchangeStreamCaptureMode(int *mode);

CUresult cuThreadExchangeStreamCaptureMode(int *mode)
{
    int before = thread_mode;
    thread_mode = *mode;
    *mode = before;
    return CUDA_SUCCESS;
}

int stand_in_thread_mode(void)
{
    return thread_mode;
}

/* ---- streams that wait for the legacy one --------------------------------------------------- */

void stand_in_blocking_stream(CUstream stream, bool is)
{
    CUstream from = is ? NULL : stream;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < STREAMS; i++) {
        if (blocking[i] == from) {
            blocking[i] = is ? stream : NULL;
            break;
        }
    }
    pthread_mutex_unlock(&lock);
}

bool stand_in_is_blocking(CUstream stream)
{
    bool found = false;
    pthread_mutex_lock(&lock);
    for (int i = 0; i < STREAMS && !found; i++) {
        found = stream && blocking[i] == stream;
    }
    pthread_mutex_unlock(&lock);
    return found;
}

/* An event of a capture cannot be queried outside, and a stream that waits for one joins the
 * capture: the library does neither. */
STAND_IN_API CUresult cuEventRecord(CUevent event, CUstream stream);
STAND_IN_API CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags);

CUresult cuEventRecord(CUevent event, CUstream stream)
{
    CUresult result = stand_in_arrive(true);
    if (stand_in_capturing(stream)) {
        stand_in_violate();
    }
    return result == CUDA_SUCCESS ? stand_in_table.cuEventRecord(event, stream) : result;
}

CUresult cuStreamWaitEvent(CUstream stream, CUevent event, unsigned flags)
{
    CUresult result = stand_in_arrive(true);
    if (stand_in_capturing(stream)) {
        stand_in_violate();
    }
    return result == CUDA_SUCCESS ? stand_in_table.cuStreamWaitEvent(stream, event, flags) : result;
}

STAND_IN_API CUresult cuStreamCreate(CUstream *stream, unsigned flags);

CUresult cuStreamCreate(CUstream *stream, unsigned flags)
{
    CUresult result = stand_in_arrive(true);
    result = result == CUDA_SUCCESS ? stand_in_table.cuStreamCreate(stream, flags) : result;
    if (result == CUDA_SUCCESS && !(flags & CU_STREAM_NON_BLOCKING)) {
        stand_in_blocking_stream(*stream, true);
    }
    return result;
}
