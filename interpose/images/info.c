/* SPDX-License-Identifier: MIT
 *
 * The reader of .nv.info.
 */
#include "info.h"

#include <string.h>

bool ga_info_is_global(const ga_cubin_section *section)
{
    return section->header.sh_type == GA_SHT_CUDA_INFO && strcmp(section->name, ".nv.info") == 0;
}

static bool has_number(unsigned attribute)
{
    return attribute == GA_INFO_PARAM_CBANK || attribute == GA_INFO_FRAME_SIZE ||
           attribute == GA_INFO_MIN_STACK_SIZE || attribute == GA_INFO_MAX_STACK_SIZE ||
           attribute == GA_INFO_REGCOUNT;
}

bool ga_info_is_local(const ga_cubin_section *section)
{
    return section->header.sh_type == GA_SHT_CUDA_INFO &&
           strncmp(section->name, GA_INFO_LOCAL, sizeof GA_INFO_LOCAL - 1) == 0;
}

bool ga_info_next(ga_info_entry *out, ga_image section, size_t *at)
{
    struct {
        uint8_t format, attribute;
        uint16_t value;
    } head;
    size_t left = section.size - *at;
    if (*at >= section.size || left < sizeof head) {
        return false;
    }
    memcpy(&head, section.bytes + *at, sizeof head);
    size_t size = sizeof head + (head.format == GA_INFO_SIZED ? head.value : 0);
    if (head.format < GA_INFO_FIXED_FIRST || head.format > GA_INFO_SIZED || size > left) {
        return false;
    }
    *out = (ga_info_entry){.attribute = head.attribute};
    if (size == sizeof head + 2 * sizeof out->number && has_number(head.attribute)) {
        const uint8_t *payload = section.bytes + *at + sizeof head;
        memcpy(&out->symbol, payload, sizeof out->symbol);
        memcpy(&out->number, payload + sizeof out->symbol, sizeof out->number);
        out->number_offset = *at + sizeof head + sizeof out->symbol;
        out->is_number = true;
    }
    *at += size;
    return true;
}

uint32_t ga_info_parameters(ga_image section)
{
    ga_info_entry entry;
    for (size_t at = 0; ga_info_next(&entry, section, &at);) {
        if (entry.is_number && entry.attribute == GA_INFO_PARAM_CBANK) {
            return entry.number & 0xffff;
        }
    }
    return 0;
}
