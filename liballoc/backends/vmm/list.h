/* SPDX-License-Identifier: MIT
 *
 * Doubly linked rings. The links are members of the elements; the head is a link outside all
 * elements. Not thread safe.
 */
#ifndef GPUALLOC_VMM_LIST_H
#define GPUALLOC_VMM_LIST_H

#include <stdbool.h>
#include <stddef.h>

typedef struct ga_vmm_link {
    struct ga_vmm_link *before, *after;
} ga_vmm_link;

/* The element of type `type` whose `member` is `link`. */
#define GA_VMM_OF(link, type, member) ((type *)(void *)((char *)(link)-offsetof(type, member)))

static inline void ga_vmm_list_init(ga_vmm_link *head)
{
    head->before = head->after = head;
}

static inline bool ga_vmm_list_empty(const ga_vmm_link *head)
{
    return head->after == head;
}

static inline void ga_vmm_list_append(ga_vmm_link *head, ga_vmm_link *link)
{
    link->before = head->before;
    link->after = head;
    head->before->after = link;
    head->before = link;
}

/* The link then points to itself, so that it may be removed again. */
static inline void ga_vmm_list_remove(ga_vmm_link *link)
{
    link->before->after = link->after;
    link->after->before = link->before;
    ga_vmm_list_init(link);
}

#endif
