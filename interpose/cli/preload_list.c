/* SPDX-License-Identifier: MIT */
#include "preload_list.h"

#include "../../liballoc/platform/environment.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ga_preload_list_add(ga_preload_list *list, const char *path)
{
    const char *name = strrchr(path, '/') + 1;
    size_t length = strlen(list->names);
    bool apart = strchr(path, ' ');
    if (apart) {
        snprintf(list->folder, sizeof list->folder, "%.*s", (int)(name - path - 1), path);
    }
    snprintf(list->names + length, sizeof list->names - length, "%s%s", length ? ":" : "",
             apart ? name : path);
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

/* Whether an entry of LD_PRELOAD goes. Behind the library for aligned blocks, `before`, is the one
 * whose blocks it aligns: an enclosing run has put both there. */
static bool library_goes(entry it, entry before, const char *names)
{
    return is_ours(it) || is_among(it, names) ||
           (it.length && is_library(before, GA_PRELOAD_ALIGN));
}

static bool folder_goes(entry it, entry before, const char *folder)
{
    (void)before;
    return is_text(it, folder);
}

/* A copy of the variable's value without the entries that go; NULL: out of memory. */
static char *filter(const char *variable, const char *separators,
                    bool (*goes)(entry it, entry before, const char *ours), const char *ours)
{
    const char *text = ga_environment(variable);
    char *kept = strdup(text ? text : "");
    size_t length = 0;
    entry before = {"", 0};
    for (text = text ? text : ""; kept && *text;) {
        entry it = {text, strcspn(text, separators)};
        size_t whole = it.length + (text[it.length] != '\0');
        if (!goes(it, before, ours)) {
            memcpy(kept + length, text, whole);
            length += whole;
        } else if (whole == it.length && length) {
            length--; /* the separator before the last entry */
        }
        before = it;
        text += whole;
    }
    if (kept) {
        kept[length] = '\0';
    }
    return kept;
}

/* ---- the environment ----------------------------------------------------------------------- */

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

static bool put(const ga_preload_list *list, const char *names, const char *folder)
{
    return set_list("LD_PRELOAD", names, filter("LD_PRELOAD", ": ", library_goes, list->names)) &&
           (!*list->folder || set_list("LD_LIBRARY_PATH", folder,
                                       filter("LD_LIBRARY_PATH", ":;", folder_goes, list->folder)));
}

bool ga_preload_list_set(const ga_preload_list *list)
{
    return put(list, list->names, list->folder);
}

bool ga_preload_list_unset(const ga_preload_list *list)
{
    return put(list, "", "");
}
