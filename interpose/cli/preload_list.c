/* SPDX-License-Identifier: MIT */
#include "preload_list.h"

#include "../../liballoc/platform/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The variable with the paths of the libraries that ga_preload_list_set() has put into LD_PRELOAD,
 * separated by colons. */
#define PRELOADED "GPUALLOC_PRELOADED"

static void append(char *list, size_t size, const char *entry)
{
    size_t length = strlen(list);
    snprintf(list + length, size - length, "%s%s", length ? ":" : "", entry);
}

void ga_preload_list_add(ga_preload_list *list, const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    bool apart = strchr(path, ' ');
    if (apart) {
        snprintf(list->folder, sizeof list->folder, "%.*s", (int)(name - path - 1), path);
    }
    append(list->names, sizeof list->names, apart ? name : path);
    append(list->paths, sizeof list->paths, path);
}

/* ---- the entries of a list of paths -------------------------------------------------------- */

typedef struct entry {
    const char *text;
    size_t length;
} entry;

static bool is_text(entry it, const char *text)
{
    return strlen(text) == it.length && memcmp(it.text, text, it.length) == 0;
}

/* Whether the entry is one of those in the text. */
static bool is_among(entry it, const char *text)
{
    for (size_t length; *text; text += length + (text[length] != '\0')) {
        length = strcspn(text, ":");
        if (it.length == length && memcmp(it.text, text, length) == 0) {
            return true;
        }
    }
    return false;
}

static const char *library_name(entry it)
{
    const char *name = it.text;
    for (size_t i = 0; i < it.length; i++) {
        name = it.text[i] == '/' ? it.text + i + 1 : name;
    }
    return name;
}

static bool is_library(entry it, ga_preload which)
{
    const char *name = library_name(it);
    return is_text((entry){name, it.length - (size_t)(name - it.text)}, ga_preload_name(which));
}

static bool is_ours(entry it)
{
    return is_library(it, GA_PRELOAD_MALLOC) || is_library(it, GA_PRELOAD_ALIGN) ||
           is_library(it, GA_PRELOAD_CUDA);
}

static bool library_goes(entry it, const ga_preload_list *list)
{
    return is_ours(it) || is_among(it, list->names);
}

static bool folder_goes(entry it, const ga_preload_list *list)
{
    return is_text(it, list->folder);
}

/* A copy of the variable's value without the entries of either list; NULL: out of memory. */
static char *filter(const char *variable, const char *separators,
                    bool (*goes)(entry it, const ga_preload_list *list),
                    const ga_preload_list *list, const ga_preload_list *before)
{
    const char *text = ga_environment(variable);
    char *kept = strdup(text ? text : "");
    size_t length = 0;
    for (text = text ? text : ""; kept && *text;) {
        entry it = {text, strcspn(text, separators)};
        size_t whole = it.length + (text[it.length] != '\0');
        if (!goes(it, list) && !goes(it, before)) {
            memcpy(kept + length, text, whole);
            length += whole;
        } else if (whole == it.length && length) {
            length--; /* the separator before the last entry */
        }
        text += whole;
    }
    if (kept) {
        kept[length] = '\0';
    }
    return kept;
}

/* ---- the environment ----------------------------------------------------------------------- */

/* What an enclosing run has put there. */
static void find_before(ga_preload_list *out)
{
    const char *text = ga_environment(PRELOADED);
    *out = (ga_preload_list){.names = ""};
    for (size_t length; text && *text; text += length + (text[length] != '\0')) {
        char path[PATH_MAX];
        length = strcspn(text, ":");
        if (*text == '/' && length < sizeof path) {
            snprintf(path, sizeof path, "%.*s", (int)length, text);
            ga_preload_list_add(out, path);
        }
    }
}

/* Takes over `rest`. */
static bool set_list(const char *variable, const char *first, char *rest)
{
    char *both = NULL;
    bool done = rest && asprintf(&both, "%s%s%s", first, *first && *rest ? ":" : "", rest) >= 0;
    if (done && *both) {
        done = setenv(variable, both, 1) == 0;
    } else if (done) {
        done = unsetenv(variable) == 0;
    }
    free(both);
    free(rest);
    return done;
}

static bool put(const ga_preload_list *list, bool there)
{
    static ga_preload_list before;
    find_before(&before);
    char *libraries = filter("LD_PRELOAD", ": ", library_goes, list, &before);
    bool done = set_list("LD_PRELOAD", there ? list->names : "", libraries);
    if (done && (*list->folder || *before.folder)) {
        char *folders = filter("LD_LIBRARY_PATH", ":;", folder_goes, list, &before);
        done = set_list("LD_LIBRARY_PATH", there ? list->folder : "", folders);
    }
    return done && set_list(PRELOADED, there ? list->paths : "", strdup(""));
}

bool ga_preload_list_set(const ga_preload_list *list)
{
    return put(list, true);
}

bool ga_preload_list_unset(const ga_preload_list *list)
{
    return put(list, false);
}
