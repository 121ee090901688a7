/* SPDX-License-Identifier: MIT
 *
 * `gpualloc list`: the registered backends by place, each with its options where it is named, and
 * as JSON. Without --all, test doubles and expert options are left out; JSON has everything.
 */
#include "../../liballoc/backends/testing/doubles.h"
#include "../../liballoc/runtime/options.h"
#include "../../liballoc/runtime/registry.h"
#include "../cuda/hooks.h"
#include "../cuda/nccl_hooks.h"
#include "cli.h"
#include "suggest.h"

#include <gpualloc/backend.h>

#include <argp.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    NAMED_MAX = 64,   /* capacity of the registry */
    INDENT = 36,      /* columns before the help of an option */
    COLUMNS = 100,    /* of a table of options */
    NAME_INDENT = 15, /* columns before the help of a backend in the list by place */
    NARROW_COLUMNS = 80
};

enum {
    KEY_HOOKS = 0x100,
    KEY_ALL
};

typedef struct list_args {
    bool json, hooks, all;
    size_t count; /* 0: all backends */
    const ga_backend *named[NAMED_MAX];
} list_args;

static const char *parent_text(ga_parent_rule rule)
{
    static const char *const texts[] = {
        [GA_PARENT_NONE] = "none",
        [GA_PARENT_OPTIONAL] = "optional",
        [GA_PARENT_REQUIRED] = "required",
    };
    return texts[rule];
}

static const ga_backend *listed(const list_args *args, size_t index)
{
    if (!args->count) {
        return ga_backend_at(index);
    }
    return index < args->count ? args->named[index] : NULL;
}

/* ---- as JSON ------------------------------------------------------------------------------- */

static json_t *json_places(const ga_backend *backend)
{
    json_t *places = json_array();
    for (int i = 0; i < GA_PLACE_COUNT; i++) {
        if (backend->places & GA_PLACE_BIT(i)) {
            json_array_append_new(places, json_string(ga_place_text((ga_place)i)));
        }
    }
    return places;
}

static json_t *json_option(const ga_option *option)
{
    json_t *object = json_pack("{s:s, s:s, s:s?, s:s, s:b}", "name", option->name, "type",
                               ga_option_type_text(option->type), "default", option->fallback,
                               "help", option->help, "expert", (int)option->expert);
    if (option->choices) {
        json_t *choices = json_array();
        for (size_t i = 0; option->choices[i]; i++) {
            json_array_append_new(choices, json_string(option->choices[i]));
        }
        json_object_set_new(object, "choices", choices);
    }
    return object;
}

static json_t *json_backend(const ga_backend *backend)
{
    json_t *options = json_array();
    for (size_t i = 0; i < backend->option_count; i++) {
        json_array_append_new(options, json_option(&backend->options[i]));
    }
    return json_pack("{s:s, s:s, s:o, s:s, s:o}", "name", backend->name, "help", backend->help,
                     "places", json_places(backend), "parent", parent_text(backend->parent_rule),
                     "options", options);
}

/* Takes over the object. NULL: creating it failed. */
static int print_packed(json_t *list)
{
    char *text = list ? json_dumps(list, JSON_COMPACT) : NULL;
    json_decref(list);
    if (!text) {
        fputs("gpualloc list: the list cannot be written as JSON\n", stderr);
        return GA_CLI_FAILED;
    }
    puts(text); /* main.c checks standard output for errors at the end */
    free(text);
    return GA_CLI_OK;
}

/* jansson passes a NULL on, so one check at the end is enough. A text that is not UTF-8, as a
 * plugin's may be, gives a NULL. */
static int print_json(const list_args *args)
{
    json_t *backends = json_array();
    const ga_backend *backend;
    int failed = 0;
    for (size_t i = 0; (backend = listed(args, i)); i++) {
        failed |= json_array_append_new(backends, json_backend(backend));
    }
    json_t *list = json_pack("{s:i, s:o}", "abi", (int)GA_BACKEND_ABI, "backends", backends);
    if (failed) {
        json_decref(list);
        list = NULL;
    }
    return print_packed(list);
}

/* ---- options as a table -------------------------------------------------------------------- */

/* The values that the help line does not name: " (wait, now)", " (0 to 100)". */
static void print_values(FILE *out, const ga_option *option)
{
    if (option->choices) {
        for (size_t i = 0; option->choices[i]; i++) {
            fprintf(out, "%s%s", i ? ", " : " (", option->choices[i]);
        }
        fputs(option->type == GA_OPTION_SIZE ? ", or a size)" : ")", out);
    } else if (option->max == INT64_MAX) {
        fprintf(out, " (%" PRId64 " or more)", option->min);
    } else if (option->min != 0 || option->max != 0) {
        fprintf(out, " (%" PRId64 " to %" PRId64 ")", option->min, option->max);
    }
}

/* Print the words of a text behind the first `indent` columns of a row, and indented below them,
 * in lines of at most `columns`. */
static void print_wrapped(const char *text, int indent, size_t columns)
{
    size_t column = (size_t)indent;
    while (*text) {
        size_t length = strcspn(text, " ");
        bool first = column == (size_t)indent;
        if (!first && column + 1 + length > columns) {
            printf("\n%*s", indent, "");
            column = (size_t)indent;
            first = true;
        }
        printf("%s%.*s", first ? "" : " ", (int)length, text);
        column += length + !first;
        text += length;
        text += strspn(text, " ");
    }
    putchar('\n');
}

static void print_option(const ga_option *option)
{
    char name[128], *text = NULL;
    size_t size;
    const char *value = !option->fallback ? "" : *option->fallback ? option->fallback : "\"\"";
    snprintf(name, sizeof name, "%s%s%s", option->name, option->fallback ? "=" : "", value);
    printf("    %-22s %-8s ", name, ga_option_type_text(option->type));
    FILE *out = open_memstream(&text, &size);
    if (out) {
        fputs(option->help, out);
        print_values(out, option);
        fputs(option->fallback ? "" : "; must be given", out);
        fclose(out);
    }
    print_wrapped(text ? text : option->help, INDENT, COLUMNS);
    free(text);
}

/* Returns the number of options that were left out. */
static size_t print_options(const ga_backend *backend, bool all)
{
    size_t hidden = 0;
    for (size_t i = 0; i < backend->option_count; i++) {
        if (all || !backend->options[i].expert) {
            print_option(&backend->options[i]);
        } else {
            hidden++;
        }
    }
    return hidden;
}

static void print_backend(const ga_backend *backend)
{
    char places[32] = "";
    for (int i = 0; i < GA_PLACE_COUNT; i++) {
        if (backend->places & GA_PLACE_BIT(i)) {
            strcat(places, *places ? " " : "");
            strcat(places, ga_place_text((ga_place)i));
        }
    }
    printf("%-10s %-18s %-9s %s\n", backend->name, places, parent_text(backend->parent_rule),
           backend->help);
}

static void print_hidden(size_t hidden)
{
    if (hidden) {
        printf("\n%zu expert option%s not shown; \"gpualloc list --all\" shows every one.\n",
               hidden, hidden == 1 ? " is" : "s are");
    }
}

static int print_table(const list_args *args)
{
    const ga_backend *backend;
    size_t hidden = 0;
    printf("%-10s %-18s %-9s %s\n", "BACKEND", "PLACES", "PARENT", "DESCRIPTION");
    for (size_t i = 0; (backend = listed(args, i)); i++) {
        print_backend(backend);
        hidden += print_options(backend, args->all);
    }
    print_hidden(hidden);
    return GA_CLI_OK;
}

/* ---- by place ------------------------------------------------------------------------------ */

static bool is_double(const ga_backend *backend)
{
    return backend == &ga_null_backend || backend == &ga_fail_backend;
}

static void print_short(const ga_backend *backend)
{
    static const char *const over[] = {
        [GA_PARENT_NONE] = "",
        [GA_PARENT_OPTIONAL] = "[/]",
        [GA_PARENT_REQUIRED] = "/",
    };
    char name[64];
    snprintf(name, sizeof name, "%s%s", backend->name, over[backend->parent_rule]);
    printf("  %-12s ", name);
    print_wrapped(backend->help, NAME_INDENT, NARROW_COLUMNS);
}

/* The completions read the rows, which begin with two blanks. */
static void print_place(ga_place place)
{
    const ga_backend *backend;
    for (size_t i = 0; (backend = ga_backend_at(i)); i++) {
        if (backend->places & GA_PLACE_BIT(place) && !is_double(backend)) {
            print_short(backend);
        }
    }
    putchar('\n');
}

static int print_places(void)
{
    printf("HOST: malloc and its family (gpualloc run --host). Begin with %s.\n",
           ga_registry_find("jemalloc") ? "jemalloc" : "system");
    print_place(GA_PLACE_HOST);
    puts("DEVICE: memory that the host requests (--device). Begin with vmm.");
    print_place(GA_PLACE_DEVICE);
    puts("KERNEL: malloc inside kernels (--kernel). Begin with slab/vmm.");
    print_place(GA_PLACE_KERNEL);
    puts("A name with \"/\" takes its memory from a backend behind it, as in slab/vmm.\n"
         "gpualloc list NAME   the options of a backend\n"
         "gpualloc list --all  those of every backend, test doubles too\n"
         "docs/guide/choose.md says which backend fits a program.");
    return GA_CLI_OK;
}

/* ---- the hook table ------------------------------------------------------------------------- */

static const ga_cuda_hook hooks[] = {GA_CUDA_HOOKS(GA_CUDA_HOOK_ROW)};

#define RUNTIME_CALL(call, symbol) {#call, #symbol},

static const struct {
    const char *call, *symbol;
} runtime_calls[] = {GA_CUDA_RUNTIME_CALLS(RUNTIME_CALL)};

#define NCCL_HOOK(symbol, description) {#symbol, description},

static const struct {
    const char *symbol, *description;
} nccl_hooks[] = {GA_NCCL_HOOKS(NCCL_HOOK)};

static const char *const kinds[] = {
    [GA_CUDA_FINDS] = "finds",     [GA_CUDA_SERVES] = "serves",   [GA_CUDA_ANSWERS] = "answers",
    [GA_CUDA_WATCHES] = "watches", [GA_CUDA_RETRIES] = "retries", [GA_CUDA_LIMITS] = "limits",
    [GA_CUDA_PATCHES] = "patches", [GA_CUDA_PASSES] = "passes",
};

static int print_hooks(void)
{
    printf("%-36s %-8s %-6s %s\n", "DRIVER FUNCTION", "KIND", "SINCE", "DESCRIPTION");
    for (size_t i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        printf("%-36s %-8s %2d.%-3d %s\n", hooks[i].symbol, kinds[hooks[i].kind],
               hooks[i].since / 1000, hooks[i].since % 1000 / 10, hooks[i].description);
    }
    printf("\n%-36s %s\n", "FUNCTION OF NCCL", "DESCRIPTION");
    for (size_t i = 0; i < GA_NCCL_HOOK_COUNT; i++) {
        printf("%-36s %s\n", nccl_hooks[i].symbol, nccl_hooks[i].description);
    }
    printf("\n%-36s %s\n", "CALL OF THE CUDA RUNTIME", "REACHES");
    for (size_t i = 0; i < sizeof runtime_calls / sizeof *runtime_calls; i++) {
        printf("%-36s %s\n", runtime_calls[i].call, runtime_calls[i].symbol);
    }
    return GA_CLI_OK;
}

static json_t *json_hook(const ga_cuda_hook *hook)
{
    static const char *const streams[] = {"any", "legacy", "thread"};
    return json_pack("{s:s, s:s, s:s, s:i, s:s, s:s}", "symbol", hook->symbol, "name", hook->name,
                     "kind", kinds[hook->kind], "since", hook->since, "streams",
                     streams[hook->streams], "help", hook->description);
}

static int print_hooks_json(void)
{
    json_t *rows = json_array();
    json_t *calls = json_object();
    json_t *nccl = json_object();
    int failed = 0;
    for (size_t i = 0; i < GA_CUDA_HOOK_COUNT; i++) {
        failed |= json_array_append_new(rows, json_hook(&hooks[i]));
    }
    for (size_t i = 0; i < sizeof runtime_calls / sizeof *runtime_calls; i++) {
        failed |=
            json_object_set_new(calls, runtime_calls[i].call, json_string(runtime_calls[i].symbol));
    }
    for (size_t i = 0; i < GA_NCCL_HOOK_COUNT; i++) {
        failed |=
            json_object_set_new(nccl, nccl_hooks[i].symbol, json_string(nccl_hooks[i].description));
    }
    return print_packed(
        failed ? NULL
               : json_pack("{s:o, s:o, s:o}", "hooks", rows, "nccl", nccl, "runtime", calls));
}

/* ---- the command --------------------------------------------------------------------------- */

static const struct argp_option options[] = {
    {"all", KEY_ALL, NULL, 0,
     "list all options of the BACKENDs, or of every one, with expert options and test doubles; "
     "JSON "
     "always has them",
     0},
    {"hooks", KEY_HOOKS, NULL, 0,
     "list the driver functions that the preload for CUDA programs replaces", 0},
    {"json", 'j', NULL, 0, "write JSON, for programs", 0},
    {0},
};

static const char doc[] =
    "List the backends by place, or the options of the BACKENDs named.\v"
    "A spec names backends with their options, each over the one that it takes its memory from, as "
    "in \"trace:file=x/jemalloc:decay=0\"; PARENT says which of them need one. "
    "docs/guide/choose.md says which one fits a program. Options that only reproduce a published "
    "experiment are expert options; they work in a spec like any other.\n\n"
    "Examples:\n"
    "  gpualloc list jemalloc\n"
    "  gpualloc list --json | jq -r '.backends[].name'";

static error_t add_named(list_args *args, const char *name, struct argp_state *state)
{
    const ga_backend *backend = ga_registry_find(name);
    if (!backend) {
        argp_error(state, "%s", ga_error_text());
    } else if (args->count == NAMED_MAX) {
        argp_error(state, "expected at most %d backends", NAMED_MAX);
    } else {
        args->named[args->count++] = backend;
    }
    return 0;
}

static error_t parse(int key, char *arg, struct argp_state *state)
{
    list_args *args = state->input;
    switch (key) {
    case 'j':
        args->json = true;
        return 0;
    case KEY_HOOKS:
        args->hooks = true;
        return 0;
    case KEY_ALL:
        args->all = true;
        return 0;
    case ARGP_KEY_ARG:
        return add_named(args, arg, state);
    case ARGP_KEY_END:
        if (args->hooks && (args->count || args->all)) {
            argp_error(state, "--hooks: expected no backend and no --all");
        }
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

int ga_cmd_list(int argc, char **argv)
{
    static const struct argp argp = {options, parse, "[BACKEND...]", doc, NULL, NULL, NULL};
    list_args args = {0};
    ga_suggest_parse(&argp, argc, argv, 0, &args);
    if (args.hooks) {
        return args.json ? print_hooks_json() : print_hooks();
    }
    if (args.json) {
        return print_json(&args);
    }
    return args.count || args.all ? print_table(&args) : print_places();
}
